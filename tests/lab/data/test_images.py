import io
import os
import subprocess
import sys
import time
import tracemalloc
import warnings

import numpy as np
import psutil
import pytest
from PIL import Image

from domainadaptor.errors import BadFile
from domainadaptor.lab.data import images
from domainadaptor.lab.data.images import FORMATS, list_files, read_image, read_image_bytes

RED = (200, 30, 40)


def near(picture, color, at=(0, 0), off=12):
    return all(abs(a - b) <= off for a, b in zip(picture.getpixel(at), color, strict=True))


def test_ordinary_files(tmp_path):
    for suffix in ("png", "jpg", "bmp", "gif", "webp", "tiff", "ppm"):
        path = tmp_path / f"x.{suffix}"
        Image.new("RGB", (20, 10), RED).save(path)
        picture = read_image(path, tmp_path)
        assert picture.mode == "RGB"
        assert picture.size == (20, 10)
        assert near(picture, RED)


def test_modes(tmp_path):
    cases = {
        "cmyk.jpg": (Image.new("RGB", (4, 4), RED).convert("CMYK"), RED),
        "gray.png": (Image.new("L", (4, 4), 77), (77, 77, 77)),
        "bit.png": (Image.new("1", (4, 4), 1), (255, 255, 255)),
        "palette.png": (Image.new("RGB", (4, 4), RED).convert("P", palette=Image.Palette.ADAPTIVE), RED),
        "clear.png": (Image.new("RGBA", (4, 4), (*RED, 0)), (255, 255, 255)),
        "half.png": (Image.new("RGBA", (4, 4), (*RED, 128)), (227, 142, 147)),
        "la.png": (Image.new("LA", (4, 4), (0, 0)), (255, 255, 255)),
    }
    for name, (picture, color) in cases.items():
        picture.save(tmp_path / name)
        assert near(read_image(tmp_path / name, tmp_path), color), name


def test_transparent_palette(tmp_path):
    picture = Image.new("P", (4, 4), 0)
    picture.putpalette([*RED, 0, 0, 0])
    picture.save(tmp_path / "p.png", transparency=0)
    assert near(read_image(tmp_path / "p.png", tmp_path), (255, 255, 255))


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path, suffix):
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    path = tmp_path / f"x.{suffix}"
    Image.fromarray(ramp).save(path)
    got = np.asarray(read_image(path, tmp_path))[..., 0]
    assert np.abs(got.astype(float) - ramp / 257).max() <= 1


def test_floats_are_scaled(tmp_path):
    values = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / "f.tiff")
    got = np.asarray(read_image(tmp_path / "f.tiff", tmp_path))[..., 0]
    assert np.abs(got - values * 255).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, orientation):
    upright = Image.new("RGB", (12, 8), "white")
    upright.paste((255, 0, 0), (0, 0, 6, 4))
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}
    stored = upright.transpose(Image.Transpose(undo[orientation])) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "x.jpg", exif=exif, quality=95)
    picture = read_image(tmp_path / "x.jpg", tmp_path)
    assert picture.size == (12, 8)
    assert near(picture, (255, 0, 0), (1, 1), off=40)
    assert near(picture, (255, 255, 255), (10, 6), off=40)


def test_only_the_first_frame(tmp_path):
    frames = [Image.new("RGB", (4, 4), RED), Image.new("RGB", (4, 4), "blue")]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    assert near(read_image(tmp_path / "x.gif", tmp_path), RED)


def test_damaged_files_are_explained(tmp_path):
    Image.new("RGB", (64, 64), RED).save(tmp_path / "whole.jpg")
    whole = (tmp_path / "whole.jpg").read_bytes()
    cases = {
        "empty.jpg": (b"", "empty"),
        "cut.jpg": (whole[: len(whole) // 2], "(?i)truncated"),
        "head.jpg": (whole[:10], "not a readable image"),
        "page.jpg": (b"<html>not found</html>", "unknown format"),
        "notes.txt": (b"hello", "unknown format"),
    }
    for name, (content, hint) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadFile, match=hint):
            read_image(tmp_path / name, tmp_path)


def mutants(count):
    """Yield files of all formats with flipped, missing, repeated or foreign bytes."""
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8))
    whole = []
    for kind, more in [
        *((name, {}) for name in FORMATS),
        ("JPEG", {"progressive": True}),
        ("TIFF", {"compression": "jpeg"}),
    ]:
        file = io.BytesIO()
        image.save(file, kind, **more)
        whole.append(file.getvalue())
    for at in range(count):
        data = bytearray(whole[at % len(whole)])
        start, end = sorted(rng.integers(0, len(data), 2))
        way = at // len(whole) % 5
        if way < 2:  # anywhere, or in the header
            for place in rng.integers(0, len(data) if way else 64, 3):
                data[place] ^= int(rng.integers(1, 256))
        elif way == 2:
            del data[start:]
        elif way == 3:
            data[start:start] = data[start:end]
        else:
            data[start:end] = rng.integers(0, 256, end - start, dtype=np.uint8).tobytes()
        yield bytes(data)


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_damaged_bytes_are_an_image_or_an_error_within_bounds(count):
    process, most, longest = psutil.Process(), 0, 0.0
    before, images = process.memory_info().rss, 0
    for data in mutants(count):
        start = time.perf_counter()
        try:
            images += read_image_bytes(data).mode == "RGB"
        except BadFile:
            pass
        longest = max(longest, time.perf_counter() - start)
        most = max(most, process.memory_info().rss - before)
    assert 0 < images < count
    assert longest <= 5
    assert most <= 512 * 10**6


def test_bombs_are_refused_by_their_header(tmp_path):
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"0" * 1000)) + chunk(b"IEND", b"")
    )
    (tmp_path / "bomb.png").write_bytes(bomb)
    with pytest.raises(BadFile, match="pixels|bomb"):
        read_image(tmp_path / "bomb.png", tmp_path)


def test_links_and_special_files_are_listed_not_followed(tmp_path):
    folder, outside = tmp_path / "images", tmp_path / "outside"
    (folder / "b" / "c").mkdir(parents=True)
    outside.mkdir()
    Image.new("RGB", (4, 4), RED).save(folder / "b" / "c" / "x.png")
    Image.new("RGB", (4, 4), RED).save(outside / "y.png")
    (folder / "a.png").symlink_to(folder / "b" / "c" / "x.png")
    (folder / "out.png").symlink_to(outside / "y.png")
    (folder / "loop").symlink_to(folder)
    (folder / "broken.png").symlink_to(folder / "none.png")
    os.mkfifo(folder / "pipe.png")
    files = list_files(folder)
    assert [str(f.relative_to(folder)) for f in files] == [
        "a.png",
        "b/c/x.png",
        "broken.png",
        "loop",
        "out.png",
        "pipe.png",
    ]
    assert read_image(folder / "a.png", folder).size == (4, 4)
    for name, hint in {"out.png": "outside", "loop": "folder", "broken.png": "regular", "pipe.png": "regular"}.items():
        with pytest.raises(BadFile, match=hint):
            read_image(folder / name, folder)


def test_folders_of_any_depth(tmp_path):
    deep = tmp_path
    for _ in range(40):
        deep = deep / "d"
    deep.mkdir(parents=True)
    Image.new("RGB", (4, 4), RED).save(deep / "x.png")
    assert list_files(tmp_path) == [deep / "x.png"]


def test_a_missing_folder_is_explained(tmp_path):
    with pytest.raises(BadFile, match="expected an image or a folder of images"):
        list_files(tmp_path / "none")


def test_the_warning_filters_stay_as_they_are(tmp_path):
    Image.new("RGB", (4, 4), RED).save(tmp_path / "x.png")
    before = list(warnings.filters)
    with images._opened(tmp_path / "x.png", tmp_path):
        assert warnings.filters == before
    assert warnings.filters == before


def test_avif_is_read_where_pillow_reads_it(tmp_path):
    Image.new("RGB", (20, 10), RED).save(tmp_path / "x.avif")
    assert near(read_image(tmp_path / "x.avif", tmp_path), RED)
    assert ".avif" in images.SUFFIXES


def test_unknown_formats_are_answered_with_the_known_ones(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"hello")
    with pytest.raises(BadFile, match="unknown format; known are BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP"):
        read_image(tmp_path / "x.jpg", tmp_path)


def test_circular_links_are_explained(tmp_path):
    (tmp_path / "x.png").symlink_to(tmp_path / "x.png")
    assert list_files(tmp_path) == [tmp_path / "x.png"]
    with pytest.raises(BadFile, match="not a regular file"):
        read_image(tmp_path / "x.png", tmp_path)


def ramp(mode):
    values = np.linspace(0, 1, 41 * 30).reshape(41, 30)
    if mode in ("F", "I", "I;16"):
        kind = {"F": np.float32, "I": np.int32, "I;16": np.uint16}[mode]
        return Image.fromarray((values * 60000).astype(kind))
    gray = Image.fromarray((values * 255).astype(np.uint8))
    picture = gray.quantize(16) if mode == "P" else gray.convert(mode)
    if mode in ("L", "P"):
        picture.info["transparency"] = 7
    return picture


@pytest.mark.parametrize("mode", ["F", "I", "I;16", "L", "LA", "RGBA", "CMYK", "P"])
def test_strips_make_the_whole_picture(tmp_path, monkeypatch, mode):
    path = tmp_path / ("x.tiff" if mode in ("F", "I", "CMYK") else "x.png")
    ramp(mode).save(path)
    whole = read_image(path, tmp_path)
    monkeypatch.setattr(images, "_STRIP", 100)
    assert read_image(path, tmp_path).tobytes() == whole.tobytes()


def test_sixteen_bits_take_little_memory(tmp_path):
    """Arrays of the whole image would take 8 bytes per pixel each."""
    Image.fromarray(np.zeros((2000, 2000), np.uint16)).save(tmp_path / "x.png")
    tracemalloc.start()
    try:
        read_image(tmp_path / "x.png", tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()


def test_the_limit_counts_the_memory_of_the_decoder(tmp_path, monkeypatch):
    color = Image.new("RGB", (64, 64), RED)
    color.save(tmp_path / "x.jpg")
    color.save(tmp_path / "progressive.jpg", progressive=True)
    Image.new("F", (64, 64)).save(tmp_path / "x.tiff")
    color.save(tmp_path / "x.webp")
    monkeypatch.setattr(images, "_MAX_BYTES", 64 * 64 * 8)
    assert read_image(tmp_path / "x.jpg", tmp_path).size == (64, 64)
    assert read_image(tmp_path / "x.tiff", tmp_path).size == (64, 64)
    for name in ("progressive.jpg", "x.webp"):
        with pytest.raises(BadFile, match="64x64 pixels of this kind take 0 MB to decode"):
            read_image(tmp_path / name, tmp_path)
    monkeypatch.setattr(images, "MAX_PIXELS", 64 * 63)
    with pytest.raises(BadFile, match="64x64 pixels; at most"):
        images.read_image_bytes((tmp_path / "x.jpg").read_bytes(), max_pixels=10**9)


LARGE = """
import sys
from pathlib import Path
from PIL import Image
from domainadaptor.lab.data.images import read_image
from domainadaptor.lab.data.preprocessing import Preprocessing

def memory(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

path, transform = Path(sys.argv[1]), Preprocessing(224, 256).transform()
transform(Image.new("RGB", (300, 300)))
open("/proc/self/clear_refs", "w").write("5")  # resets the peak
before = memory("VmRSS")
transform(read_image(path, path.parent))
print((memory("VmHWM") - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("name", ["rgba.png", "i16.png", "f.tiff", "cmyk.jpg", "x.jpg", "x.webp", "x.avif"])
def test_the_largest_images_take_half_a_gigabyte(tmp_path, name):
    mode = {"rgba.png": "RGBA", "i16.png": "I;16", "f.tiff": "F", "cmyk.jpg": "CMYK"}.get(name, "RGB")
    side = {"x.webp": 5300, "x.avif": 6120}.get(name, 7071)
    Image.new(mode, (side, side)).save(tmp_path / name)
    done = subprocess.run([sys.executable, "-c", LARGE, tmp_path / name], capture_output=True, text=True, check=True)
    assert 100 < int(done.stdout) <= 512
