"""One file per method or family; each exports functions from a network to an adaptor, whose keyword arguments are its options."""
