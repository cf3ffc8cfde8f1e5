"""What happens to one test batch, from the network to the prediction."""
