from common import data

import pytest
import torch


@pytest.fixture(scope="module")
def images_and_labels():
    return data.test_data()


def test_shapes_types_and_range(images_and_labels):
    images, labels = images_and_labels
    assert images.shape == (2000, 3, 16, 16) and images.dtype == torch.float32
    assert labels.shape == (2000,) and labels.dtype == torch.int64
    assert images.min() >= -2 and images.max() <= 2
    assert data.train_data()[0].shape == (4000, 3, 16, 16)


def test_the_classes_are_about_equally_frequent(images_and_labels):
    assert images_and_labels[1].bincount().tolist() == [476, 517, 502, 505]


def test_the_same_arguments_give_the_same_images_and_another_seed_others():
    first, again, other = data.make_data(50, 1), data.make_data(50, 1), data.make_data(50, 2)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_making_data_leaves_the_global_random_state():
    before = torch.get_rng_state()
    data.make_data(10, 1)
    list(data.calibration_batches(10))
    assert torch.equal(torch.get_rng_state(), before)


def test_bright_classes_are_brighter(images_and_labels):
    images, labels = images_and_labels
    brightness = images.mean((1, 2, 3))
    is_dark = labels >= 2
    assert brightness[~is_dark].mean() > brightness[is_dark].mean() + 0.3


def test_stripes_run_in_the_direction_of_the_class(images_and_labels):
    """Vertical stripes change from column to column, horizontal ones from row to row; red minus green shows them."""
    images, labels = images_and_labels
    stripes = images[:, 0] - images[:, 1]
    along_columns = stripes.diff(dim=2).square().mean((1, 2))
    along_rows = stripes.diff(dim=1).square().mean((1, 2))
    is_vertical = labels % 2 == 1
    assert (along_columns / along_rows)[is_vertical].mean() > 2
    assert (along_rows / along_columns)[~is_vertical].mean() > 2


def test_calibration_batches_are_exactly_the_first_training_images():
    batches = list(data.calibration_batches(70))
    assert all(isinstance(batch, tuple) and len(batch) == 1 for batch in batches)
    assert [len(images) for (images,) in batches] == [32, 32, 6]
    assert torch.equal(torch.cat([images for (images,) in batches]), data.train_data()[0][:70])


def test_a_calibration_batch_does_not_hold_the_whole_data_set():
    ((images,),) = data.calibration_batches(2)
    assert images.untyped_storage().nbytes() == images.numel() * 4


@pytest.mark.parametrize("n", [0, -1, 4001])
def test_calibration_without_images_or_with_too_many_is_refused_at_once(n):
    with pytest.raises(ValueError, match=f"between 1 and 4000 images, got n={n}"):
        data.calibration_batches(n)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="batch_size=0"):
        data.calibration_batches(4, batch_size=0)
