import torch

from domainadaptor.tasks.rotation import Rotation, rotate


def test_each_image_is_turned_by_its_own_quarter_turns():
    images = torch.arange(4 * 3 * 5 * 5.0).view(4, 3, 5, 5)
    turned = rotate(images, torch.tensor([0, 1, 2, 3]))
    for k in range(4):
        for y in range(5):
            for x in range(5):
                source = {0: (y, x), 1: (x, 4 - y), 2: (4 - y, 4 - x), 3: (4 - x, y)}[k]
                assert torch.equal(turned[k, :, y, x], images[k, :, source[0], source[1]])


def test_all_turns_are_drawn_and_told():
    task = Rotation(8)
    images = torch.randn(64, 3, 6, 6)
    changed, turns = task.examples(images, torch.Generator().manual_seed(0))
    assert torch.equal(changed, rotate(images, turns))
    assert set(turns.tolist()) == {0, 1, 2, 3}
    assert task(torch.randn(5, 8)).shape == (5, 4)
    assert task.head.bias is None
