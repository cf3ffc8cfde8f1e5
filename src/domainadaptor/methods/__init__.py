"""Methods, one file per method or family: functions from a network to an adaptor; keyword arguments are options."""
