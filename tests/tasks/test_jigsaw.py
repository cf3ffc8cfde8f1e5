import numpy as np
import pytest
import torch

from domainadaptor.errors import BadBatch
from domainadaptor.tasks.jigsaw import Jigsaw, shuffle_tiles, tile_orders


def test_the_orders_are_permutations_that_lie_far_apart():
    orders = tile_orders().numpy()
    assert orders.shape == (32, 9)
    assert orders[0].tolist() == list(range(9))
    assert all(sorted(order) == list(range(9)) for order in orders.tolist())
    distances = [int((a != b).sum()) for at, a in enumerate(orders) for b in orders[:at]]
    # Two random orders have 8 of 9 tiles elsewhere on average, but some pairs of 32 share three places or more.
    assert min(distances) >= 7
    assert np.mean(distances) > 8.2
    random = np.stack([np.random.default_rng(seed).permutation(9) for seed in range(32)])
    assert min((a != b).sum() for at, a in enumerate(random) for b in random[:at]) < 7


def test_tiles_go_where_the_order_says():
    images = torch.randn(2, 3, 10, 11)  # the tenth row and the last two columns do not divide by three: filled up
    orders = torch.stack([torch.arange(9), torch.randperm(9, generator=torch.Generator().manual_seed(1))])
    got = shuffle_tiles(images, orders)
    assert got.shape == images.shape
    assert torch.equal(got[:, :, 9], got[:, :, 8])
    for n in range(2):
        for place in range(9):
            source = int(orders[n, place])
            y, x, v, u = place // 3 * 3, place % 3 * 3, source // 3 * 3, source % 3 * 3
            assert torch.equal(got[n, :, y : y + 3, x : x + 3], images[n, :, v : v + 3, u : u + 3])


def test_examples_and_head():
    task = Jigsaw(16)
    images = torch.randn(200, 3, 9, 9)
    changed, orders = task.examples(images, torch.Generator().manual_seed(0))
    assert len(set(orders.tolist())) == 32
    assert torch.equal(changed[orders == 0], images[orders == 0])
    assert task(torch.randn(5, 16)).shape == (5, 32)
    with pytest.raises(BadBatch, match="3x3"):
        task.examples(images[..., :2], torch.Generator())
