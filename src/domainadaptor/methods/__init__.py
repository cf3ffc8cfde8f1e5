"""One file per method or family: functions from a network to an adaptor, whose keyword arguments are its options."""
