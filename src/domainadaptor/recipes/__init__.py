"""One file per paper; each exports functions from a network to an adaptor, whose keyword arguments are its options."""
