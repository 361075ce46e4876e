#!/usr/bin/env python3
"""src/vision against Pillow: decoding, orientation, resize, the processors' rules, and files that are no good.

Usage: image_test.py --arrays build/tests/vision_arrays [TestClass[.test]]
"""
import argparse
import io
import json
import os
import random
import sys
import tempfile
import unittest
import warnings
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, PngImagePlugin

import image_files
from image_arrays import VisionArrays, VisionError
from sweep import SWEEPING, some

PROGRAM = None
# In shades of 8 bits, by format. jpeg: the same decoder as Pillow's.
MOST = {"png": 0, "webp": 0, "gif": 0, "jpg": 0}
SHARED = Path(os.environ.get("SITU_SHARED", Path(__file__).resolve().parent.parent.parent / "shared"))


def as_pillow(data):
    """What transformers' load_image gives."""
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, {"jpg": "jpeg"}.get(kind, kind), **options)
    return out.getvalue()


class ImageCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.arrays = VisionArrays(PROGRAM)
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        cls.noise = np.random.default_rng(7)

    @classmethod
    def tearDownClass(cls):
        code = cls.arrays.close()
        cls.temporary.cleanup()
        assert code == 0, f"vision_arrays ended with {code}"

    def random(self, height, width, channels=3, kind=np.uint8):
        shape = (height, width, channels) if channels > 1 else (height, width)
        return self.noise.integers(0, np.iinfo(kind).max, shape, dtype=kind, endpoint=True)

    def smooth(self, height, width):
        y, x = np.mgrid[0:height, 0:width]
        return np.stack([(np.sin(x / 9 + c) * np.cos(y / 7 - c) + 1) * 127 for c in range(3)], -1).astype(np.uint8)

    def file(self, data, name="image"):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def check(self, data, most=0, what=None):
        wanted, got = as_pillow(data), self.arrays.decode(self.file(data))
        self.assertEqual(got.shape, wanted.shape, what)
        self.assertLessEqual(np.abs(got.astype(int) - wanted).max(), most, what)

    def refused(self, data, words, code="bad_file", **limits):
        with self.assertRaises(VisionError) as caught:
            self.arrays.decode(self.file(data), **limits)
        message = str(caught.exception)
        self.assertRegex(message, words)
        self.assertEqual(caught.exception.code, code, message)
        self.assertTrue(message.startswith(str(self.folder)), message)
        self.assertNotIn("\n", message)


class DecodeTest(ImageCase):
    SIZES = [(1, 1), (1, 7), (9, 1), (2, 3), (17, 33), (64, 64), (31, 150)]

    def test_modes_of_png(self):
        for height, width in self.SIZES:
            rgb = Image.fromarray(self.random(height, width))
            for mode in ["1", "L", "LA", "P", "RGB", "RGBA"]:
                image = Image.fromarray(self.random(height, width, 4)) if mode == "RGBA" else rgb.convert(mode)
                self.check(saved(image, "png"), what=(mode, width, height))
            self.check(saved(rgb.convert("P"), "png", transparency=3), what="palette with transparency")
            self.check(saved(rgb.convert("L"), "png", transparency=9), what="grey with transparency")
            self.check(saved(Image.fromarray(self.random(height, width, 1, np.uint16)), "png"), what="16 bit grey")

    def test_bits_of_png(self):
        shuffle = random.Random(3)
        for colour, depths in {0: [1, 2, 4, 8, 16], 2: [8, 16], 3: [1, 2, 4, 8], 4: [8, 16], 6: [8, 16]}.items():
            for depth in depths:
                for height, width in [(1, 1), (3, 5), (8, 8), (11, 19)]:
                    samples = width * image_files.PNG_CHANNELS[colour]
                    rows = [[shuffle.randrange(1 << depth) for _ in range(samples)] for _ in range(height)]
                    palette = bytes(shuffle.randrange(256) for _ in range(3 << depth)) if colour == 3 else None
                    for interlaced in [False, True]:
                        data = image_files.png(rows, depth, colour, interlaced, palette=palette)
                        self.check(data, what=(colour, depth, width, height, interlaced))

    def test_indices_beyond_the_palette_are_black(self):
        self.check(image_files.png([[0, 1, 2, 200]], 8, 3, palette=[10, 20, 30, 40, 50, 60]))

    def test_jpeg(self):
        for height, width in self.SIZES:
            for pixels in [self.random(height, width), self.smooth(height, width)]:
                image = Image.fromarray(pixels)
                for quality in [20, 75, 95]:
                    for subsampling in [0, 1, 2]:
                        for more in [{}, {"progressive": True}, {"restart_marker_blocks": 2, "optimize": True}]:
                            data = saved(image, "jpg", quality=quality, subsampling=subsampling, **more)
                            self.check(data, MOST["jpg"], (width, height, quality, subsampling, more))
                self.check(saved(image.convert("L"), "jpg"), MOST["jpg"], "grey")
                self.check(saved(image, "jpg", keep_rgb=True), MOST["jpg"], "RGB")
            self.check(saved(Image.fromarray(self.random(height, width, 4), "CMYK"), "jpg"), MOST["jpg"], "CMYK")

    def test_jpeg_that_pillow_does_not_write(self):
        """64 x 64 pixels whose blocks are as many in another arrangement, and other colours, by a change of the header."""
        for pixels in [self.random(64, 64), self.smooth(64, 64)]:
            for progressive in [False, True]:
                for subsampling, was, now in [(1, 0x21, 0x12), (2, 0x22, 0x41), (2, 0x22, 0x14)]:
                    data = bytearray(saved(Image.fromarray(pixels), "jpg", subsampling=subsampling, progressive=progressive))
                    at = data.index(b"\xff\xc2" if progressive else b"\xff\xc0") + 11
                    self.assertEqual(data[at], was)
                    data[at] = now
                    self.check(bytes(data), MOST["jpg"], hex(now))
            inks = Image.fromarray(np.concatenate([pixels, pixels[..., :1]], -1), "CMYK")
            for image, transforms in [(inks, [0, 2]), (Image.fromarray(pixels), [0, 1])]:
                data = bytearray(saved(image, "jpg", subsampling=0, **({} if image is inks else {"keep_rgb": True})))
                at = data.index(b"Adobe") + 11
                for transform in transforms:
                    data[at] = transform
                    self.check(bytes(data), MOST["jpg"], (image.mode, transform))

    def test_webp(self):
        for height, width in self.SIZES:
            for pixels in [self.random(height, width), self.smooth(height, width)]:
                for more in [{"lossless": True}, {"quality": 10}, {"quality": 80}, {"quality": 100, "method": 6}]:
                    self.check(saved(Image.fromarray(pixels), "webp", **more), MOST["webp"], (width, height, more))
                    alpha = Image.fromarray(np.concatenate([pixels, self.random(height, width)[..., :1]], -1))
                    self.check(saved(alpha, "webp", exact=True, **more), MOST["webp"], (width, height, more, "alpha"))

    def test_gif(self):
        for height, width in self.SIZES:
            image = Image.fromarray(self.random(height, width))
            for interlace in [0, 1]:
                self.check(saved(image.convert("P", palette=Image.Palette.ADAPTIVE), "gif", interlace=interlace), what=(width, height))
                self.check(saved(image.convert("L"), "gif", interlace=interlace), what=(width, height))
        frames = [Image.fromarray(self.random(20, 30)).convert("P") for _ in range(3)]
        self.check(saved(frames[0], "gif", save_all=True, append_images=frames[1:]), what="the first of several")

    def test_gif_frames_anywhere(self):
        pixels = [1, 3, 2, 0]
        for screen, frame, offset in [((4, 3), (2, 2), (1, 1)), ((2, 2), (2, 2), (1, 1)), ((5, 1), (1, 1), (3, 0))]:
            for transparent in [None, 0, 1, 2, 200]:
                data = image_files.gif(screen, frame, offset, pixels[:frame[0] * frame[1]], transparent)
                self.check(data, what=(screen, frame, offset, transparent))

    def test_tells_formats_by_their_bytes(self):
        data = saved(Image.fromarray(self.random(5, 6)), "png")
        path = self.file(data, "photo.jpg")
        self.assertTrue((self.arrays.decode(path) == as_pillow(data)).all())


class OrientationTest(ImageCase):
    def files(self, tag, words):
        """The same picture with EXIF `tag` and XMP `words`, in each format that has them."""
        image = Image.fromarray(self.smooth(5, 9))
        for kind in ["jpg", "webp", "png"]:
            options = {"exif": b"Exif\0\0" + tag} if tag else {}
            if words and kind == "png":
                info = PngImagePlugin.PngInfo()
                info.add_itxt("XML:com.adobe.xmp", words.decode())
                options["pnginfo"] = info
            elif words:
                options["xmp"] = words
            yield kind, saved(image, kind, **options)

    def test_exif(self):
        for orientation in range(0, 10):
            for big in [True, False]:
                for kind, data in self.files(image_files.exif(orientation, big), None):
                    self.check(data, MOST[kind], (kind, orientation, big))
        for tag in [image_files.exif(6, kind=1), image_files.exif(6, kind=4)]:
            for kind, data in self.files(tag, None):
                self.check(data, MOST[kind])
        turned = [as_pillow(d).shape for _, d in self.files(image_files.exif(6), None)]
        self.assertEqual(turned, [(9, 5, 3)] * 3)

    def test_xmp(self):
        for orientation in range(0, 10):
            for kind, data in self.files(None, image_files.xmp(orientation)):
                self.check(data, MOST[kind], (kind, orientation))
        for kind, data in self.files(image_files.exif(3), image_files.xmp(6)):
            self.check(data, MOST[kind], "EXIF comes first")

    def test_chunks_of_png(self):
        rows = [[10, 20, 30, 40, 50, 60], [1, 2, 3, 4, 5, 6]]
        text = b"Raw profile type exif\0"
        for place in ["before", "after"]:
            for name, data in [(b"eXIf", image_files.exif(8)), (b"tEXt", text + image_files.raw_profile(6)),
                               (b"zTXt", text + b"\0" + zlib.compress(image_files.raw_profile(5)))]:
                self.check(image_files.png(rows, 8, 2, **{place: image_files.chunk(name, data)}), what=(place, name))

    def test_exif_that_is_cut(self):
        """Where the orientation is gone, Pillow does not turn either."""
        tag = image_files.exif(6)
        for size in range(len(tag)):
            for kind, data in self.files(tag[:size], None):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        as_pillow(data)
                    except Exception:  # Pillow gives up on some
                        continue
                    self.check(data, MOST[kind], (kind, size))


class ResizeTest(ImageCase):
    def test_is_pillows(self):
        shuffle = random.Random(5)
        for case in range(150):
            edge = shuffle.choice([4, 20, 90, 400])
            height, width, to_height, to_width = (shuffle.randint(1, edge) for _ in range(4))
            if case % 5 == 0:
                to_width = width  # one pass alone
            if case % 7 == 0:
                to_height = height
            image = Image.fromarray(self.random(height, width))
            path = self.file(saved(image, "png"))
            for resample in range(6):
                got = self.arrays.resize(path, to_width, to_height, resample)
                wanted = np.asarray(image.resize((to_width, to_height), resample))
                self.assertTrue((got == wanted).all(), (width, height, to_width, to_height, resample))


class BadFileTest(ImageCase):
    def test_no_image(self):
        self.refused(b"", "is empty")
        self.refused(b"hello world\n", "is not an image; png, jpeg, webp and gif are read", "unsupported_model")
        for data, what in [(b"BM" + bytes(60), "a BMP"), (b"\0\0\0\x20ftypheic", "a HEIC"), (b"II*\0" + bytes(20), "a TIFF"),
                           (b"\0\0\0\x20ftypavif", "an AVIF"), (b"<svg xmlns=''>", "SVG")]:
            self.refused(data, what, "unsupported_model")
        for path, words, code in [(self.folder, "is a directory", "bad_file"), (self.folder / "none", "no such file", "not_found")]:
            with self.assertRaisesRegex(VisionError, words) as caught:
                self.arrays.decode(path)
            self.assertEqual(caught.exception.code, code)
        os.mkfifo(self.folder / "pipe")
        with self.assertRaisesRegex(VisionError, "is not a regular file"):
            self.arrays.decode(self.folder / "pipe")

    def test_headers_of_giants(self):
        for data in [image_files.png_header(100_000, 100_000, 8, 2) + image_files.chunk(b"IDAT", b"") + image_files.chunk(b"IEND", b""),
                     image_files.jpeg_header(65_500, 65_500), image_files.webp_header(16_383, 16_383),
                     image_files.gif((65_535, 65_535), (1, 1), (0, 0), [1]), image_files.gif((9, 9), (60_000, 60_000), (0, 0), [1] * 9),
                     image_files.riff((b"VP8X", bytes(4) + b"\xe7\xfd\0" * 2), (b"VP8L", bytes(20)))]:
            before = self.arrays.peak_kib
            self.refused(data, "has [0-9]+ x [0-9]+ pixels, more than the limit of 64000000", "invalid_argument")
            self.assertLess(self.arrays.peak_kib - before, 8 << 10, "a header costs memory")

    def test_bombs(self):
        """A few KB that say 64 megapixels: within the limit, and so within 512 MiB; one more row is refused."""
        flat = Image.new("1", (8000, 8000))
        for kind, options in some([("png", {}), ("gif", {}), ("webp", {"lossless": True, "method": 0}), ("jpg", {"progressive": True})], 3):
            data = saved(flat.convert("L") if kind != "png" else flat, kind, **options)
            arrays = VisionArrays(PROGRAM)
            got = arrays.decode(self.file(data))
            self.assertEqual(got.shape, (8000, 8000, 3))
            self.assertEqual(int(got.max()), 0)
            self.assertLess(arrays.peak_kib, 512 << 10, kind)
            self.assertEqual(arrays.close(), 0)
            self.refused(data, "8000 x 8000 pixels, more than the limit of 63999999", "invalid_argument", max_pixels=63_999_999)
        colour = saved(Image.new("RGB", (8000, 8000)), "jpg", progressive=True, subsampling=0)
        self.refused(colour, "takes more memory than the limit of 64000000 pixels allows", "invalid_argument")
        arrays = VisionArrays(PROGRAM)
        self.assertEqual(arrays.decode(self.file(colour), max_pixels=80_000_000).shape, (8000, 8000, 3))
        self.assertEqual(arrays.close(), 0)

    def test_many_scans(self):
        data = saved(Image.fromarray(self.smooth(16, 16)), "jpg", progressive=True)
        scan = data.rindex(b"\xff\xda")
        self.refused(data[:scan] + data[scan:-2] * 150 + data[-2:], "more than 100 scans")

    def test_animated_webp(self):
        frames = [Image.fromarray(self.random(8, 8)) for _ in range(3)]
        data = saved(frames[0], "webp", save_all=True, append_images=frames[1:])
        self.refused(data, "is an animated webp", "unsupported_model")

    def test_cut_anywhere(self):
        """A file that is cut off is refused, or shows the whole picture; never another one."""
        image = Image.fromarray(self.smooth(24, 17))
        alpha = Image.fromarray(self.random(24, 17, 4))
        tag = {"exif": b"Exif\0\0" + image_files.exif(6)}
        for kind, picture, options in [("png", image, tag), ("png", image.convert("P"), {}), ("jpg", image, tag), ("jpg", image, {"progressive": True, **tag}),
                                       ("webp", image, {"lossless": True, **tag}), ("webp", image, {"quality": 90, **tag}), ("webp", alpha, {"quality": 50}),
                                       ("gif", image.convert("P"), {})]:
            data = saved(picture, kind, **options)
            whole = as_pillow(data)
            shown = 0
            for size in some(range(len(data)), 5):
                try:
                    got = self.arrays.decode(self.file(data[:size]))
                except VisionError as error:
                    self.assertNotIn("\n", str(error))
                    self.assertNotEqual(error.code, "internal", error)
                    continue
                self.assertTrue(got.shape == whole.shape and (got == whole).all(), (kind, options, size, len(data)))
                shown += 1
            self.assertLess(shown, 40 if SWEEPING else 9, (kind, options))

    def test_damaged(self):
        """A few thousand files with bits flipped, bytes taken out and put in: an answer, never an end."""
        shuffle = random.Random(11)
        image = Image.fromarray(self.smooth(20, 30))
        seeds = [saved(image, "png"), image_files.png([[1, 2, 3] * 9] * 9, 8, 2, True), saved(image, "jpg", exif=b"Exif\0\0" + image_files.exif(6)),
                 saved(image, "jpg", progressive=True), saved(image, "webp", lossless=True), saved(image, "webp", quality=60),
                 saved(Image.fromarray(self.random(9, 9, 4)), "webp"), saved(image.convert("P"), "gif", interlace=1)]
        shown = 0
        for case in some(range(3000), 5):
            data = bytearray(seeds[case % len(seeds)])
            for _ in range(shuffle.randint(1, 6)):
                at = shuffle.randrange(min(len(data), 96) if shuffle.random() < 0.5 else len(data))
                change = shuffle.randrange(5)
                if change == 0:
                    del data[at:at + shuffle.randint(1, 20)]
                elif change == 1:
                    data[at:at] = shuffle.randbytes(shuffle.randint(1, 20))
                else:
                    data[at] ^= 1 << shuffle.randrange(8)
                if not data:
                    break
            try:
                self.arrays.decode(self.file(bytes(data)), max_pixels=4_000_000)
                shown += 1
            except VisionError as error:
                self.assertNotIn("\n", str(error))
                self.assertNotEqual(error.code, "internal", f"case {case}: {error}")
        self.assertGreater(shown, 0)
        self.assertLess(self.arrays.peak_kib, 256 << 10)


class ProcessorTest(ImageCase):
    """The rules in NumPy, on images of any shape; tests/compare_processors.py compares with transformers itself."""

    MEAN, STD = np.float32([0.48145466, 0.4578275, 0.40821073]), np.float32([0.26862954, 0.26130258, 0.27577711])

    def model(self, config, preprocessor, processor=None):
        for name, content in [("config.json", config), ("preprocessor_config.json", preprocessor), ("processor_config.json", processor or {})]:
            (self.folder / name).write_text(json.dumps(content))

    def image(self, width, height):
        image = Image.fromarray(self.random(height, width))
        return image, self.file(saved(image, "png"), f"{width}x{height}.png")

    def planes(self, image, mean=0.5, std=0.5):
        pixels = (np.asarray(image).astype(np.float64) * 0.00392156862745098).astype(np.float32)
        return ((pixels - np.float32(mean)) / np.float32(std)).transpose(2, 0, 1)

    def test_llava(self):
        self.model({"model_type": "llava", "image_token_index": 7, "vision_config": {"patch_size": 7}},
                   {"image_processor_type": "CLIPImageProcessorFast", "size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}})
        wanted, files = [], []
        for width, height in [(40, 61), (61, 40), (28, 28), (5, 90)]:
            image, file = self.image(width, height)
            short, long = min(width, height), max(width, height)
            resized = image.resize((28, 28 * long // short) if width <= height else (28 * long // short, 28), 3)
            left, top = (resized.width - 28) // 2, (resized.height - 28) // 2
            wanted.append(self.planes(resized.crop((left, top, left + 28, top + 28)), self.MEAN, self.STD))
            files.append(file)
        got = self.arrays.process_images(self.folder, files)
        self.assertTrue((got["pixel_values"] == np.stack(wanted)).all())
        self.assertEqual([i["expansion"] for i in self.arrays.answer["images"]], [[["<image>", 7, 16, True]]] * 4)

    def test_qwen2_vl(self):
        self.model({"model_type": "qwen2_vl", "image_token_id": 9}, {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4})
        image, file = self.image(52, 37)
        got = self.arrays.process_images(self.folder, [file, file], min_pixels=512, max_pixels=1024)
        # round(37 / 8), round(52 / 8) = 5, 6; 1920 pixels are shrunk to 3 x 4 units of 8.
        planes = self.planes(image.resize((32, 24), 3), self.MEAN, self.STD)
        patches = planes.reshape(3, 3, 2, 4, 4, 2, 4).transpose(1, 4, 2, 5, 0, 3, 6)
        patches = np.repeat(patches[:, :, :, :, :, None], 2, axis=5).reshape(48, 96)
        self.assertTrue((got["pixel_values"] == np.concatenate([patches, patches])).all())
        self.assertEqual(got["image_grid_thw"].tolist(), [[1, 6, 8]] * 2)
        self.assertEqual(self.arrays.answer["images"][0]["expansion"], [["<|image_pad|>", 9, 12, True]])
        _, wide = self.image(402, 2)
        with self.assertRaisesRegex(VisionError, "402x2.png: has 402 x 2 pixels: one edge is more than 200 times the other"):
            self.arrays.process_images(self.folder, [wide])

    def test_idefics3(self):
        self.model({"model_type": "smolvlm", "image_token_id": 3, "scale_factor": 2, "vision_config": {"image_size": 28, "patch_size": 7}},
                   {"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 80}, "max_image_size": {"longest_edge": 28}})
        image, file = self.image(50, 30)
        resized = image.resize((80, 48), 1).resize((84, 56), 1)
        tiles = [resized.crop((x, y, x + 28, y + 28)) for y in (0, 28) for x in (0, 28, 56)] + [resized.resize((28, 28), 1)]
        got = self.arrays.process_images(self.folder, [file])
        self.assertTrue((got["pixel_values"] == np.stack([self.planes(tile) for tile in tiles])[None]).all())
        self.assertEqual(got["pixel_attention_mask"].shape, (1, 7, 28, 28))
        self.assertTrue(got["pixel_attention_mask"].all())
        pieces = self.arrays.answer["images"][0]["expansion"]
        row = "".join(f"<fake_token_around_image><row_{{0}}_col_{c}>" + "<image>" * 4 for c in (1, 2, 3)) + "\n"
        whole = row.format(1) + row.format(2) + "\n<fake_token_around_image><global-img>" + "<image>" * 4 + "<fake_token_around_image>"
        self.assertEqual("".join(text * count for text, _, count, _ in pieces), whole)
        got = self.arrays.process_images(self.folder, [file], do_image_splitting="false")
        self.assertEqual(got["pixel_values"].shape, (1, 1, 3, 28, 28))
        pieces = self.arrays.answer["images"][0]["expansion"]
        self.assertEqual("".join(text * count for text, _, count, _ in pieces),
                         "<fake_token_around_image><global-img>" + "<image>" * 4 + "<fake_token_around_image>")

    def test_gemma3(self):
        self.model({"model_type": "gemma3", "mm_tokens_per_image": 2, "boi_token_index": 5, "eoi_token_index": 6, "image_token_index": 8},
                   {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 14, "width": 14}, "pan_and_scan_min_crop_size": 10,
                    "pan_and_scan_max_num_crops": 4, "pan_and_scan_min_ratio_to_activate": 1.2})
        image, file = self.image(61, 30)
        one = [["\n\n", -1, 1, False], ["<start_of_image>", 5, 1, False], ["<image_soft_token>", 8, 2, True], ["<end_of_image>", 6, 1, False], ["\n\n", -1, 1, False]]
        self.arrays.process_images(self.folder, [file])
        self.assertEqual(self.arrays.answer["images"][0]["expansion"], one)
        got = self.arrays.process_images(self.folder, [file], do_pan_and_scan="True")
        tiles = [image, image.crop((0, 0, 31, 30)), image.crop((31, 0, 61, 30))]
        self.assertTrue((got["pixel_values"] == np.stack([self.planes(tile.resize((14, 14), 2)) for tile in tiles])).all())
        answer = self.arrays.answer["images"][0]
        self.assertEqual(answer["tokens"], 6)
        text = "".join(text * count for text, _, count, _ in answer["expansion"])
        part = "\n\n<start_of_image><image_soft_token><image_soft_token><end_of_image>\n\n"
        self.assertEqual(text, f"Here is the original image {part} and here are some crops to help you see better {part} {part}")

    def test_pixtral(self):
        self.model({"model_type": "llava", "image_token_index": 10}, {"image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 32}},
                   {"processor_class": "PixtralProcessor", "patch_size": 4, "spatial_merge_size": 2})
        (first, one), (second, two) = self.image(100, 47), self.image(9, 31)
        got = self.arrays.process_images(self.folder, [one, two])
        wanted = np.zeros((2, 3, 32, 32), np.float32)
        wanted[0, :, :16] = self.planes(first.resize((32, 16), 3), self.MEAN, self.STD)
        wanted[1, :, :, :16] = self.planes(second.resize((16, 32), 3), self.MEAN, self.STD)
        self.assertTrue((got["pixel_values"] == wanted).all())
        self.assertEqual(got["image_sizes"].tolist(), [[16, 32], [32, 16]])
        line = ["[IMG]", 10, 4, True]
        self.assertEqual(self.arrays.answer["images"][0]["expansion"], [line, ["[IMG_BREAK]", -1, 1, False], line, ["[IMG_END]", -1, 1, False]])

    def test_memory(self):
        """An image at the limit, turned, through the largest rules: within 512 MiB, tensors and all."""
        tag = b"Exif\0\0" + image_files.exif(6)
        file = self.file(saved(Image.new("RGB", (8000, 8000), (9, 99, 199)), "jpg", exif=tag))
        for config, preprocessor in some([("qwen2_vl", {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 6_000_000, "min_pixels": 3136}),
                                     ("smolvlm", {"image_processor_type": "SmolVLMImageProcessor", "size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}),
                                     ("llava", {"image_processor_type": "CLIPImageProcessor"})], 3):
            self.model({"model_type": config, "vision_config": {"patch_size": 14, "image_size": 512}, "scale_factor": 4}, preprocessor)
            arrays = VisionArrays(PROGRAM)
            got = arrays.process_images(self.folder, [file])["pixel_values"]
            self.assertLess(len(np.unique(got.reshape(-1)[::11])), 8)  # a flat picture stays one
            self.assertLess(arrays.peak_kib, 512 << 10, config)
            self.assertEqual(arrays.close(), 0)

    def test_refused(self):
        _, file = self.image(9, 9)
        self.model({"model_type": "florence2"}, {"image_processor_type": "CLIPImageProcessor"})
        with self.assertRaisesRegex(VisionError, "not known .model_type \"florence2\".*; only --encoder-input works") as caught:
            self.arrays.process_images(self.folder, [file])
        self.assertEqual(caught.exception.code, "unsupported_model")
        self.model({"model_type": "llava"}, {"image_processor_type": "CLIPImageProcessor", "size": "big"})
        with self.assertRaisesRegex(VisionError, "size is \"big\", not a number"):
            self.arrays.process_images(self.folder, [file])
        self.model({"model_type": "llava", "vision_config": {"patch_size": 7}}, {"image_processor_type": "CLIPImageProcessor"})
        for key, value, words in [("colour", "1", "setting colour is not known; there are crop_size, do_center_crop"),
                                  ("do_resize", "7", "do_resize is 7, not true or false"), ("crop_size", "70000", "not a whole number of 1 to 65536"),
                                  ("image_mean", "[1]", "not one number or three"), ("image_std", "0", "not above 0")]:
            with self.assertRaisesRegex(VisionError, words):
                self.arrays.process_images(self.folder, [file], **{key: value})
        _, thin = self.image(40_000, 1)
        with self.assertRaisesRegex(VisionError, "40000x1.png: has 40000 x 1 pixels; resized for the model it has 8960000 x 224 pixels, more than the limit"):
            self.arrays.process_images(self.folder, [thin])
        (self.folder / "preprocessor_config.json").unlink()
        with self.assertRaisesRegex(VisionError, "there is no preprocessor_config.json"):
            self.arrays.process_images(self.folder, [file])

    def test_one_pixel(self):
        _, file = self.image(1, 1)
        for config, kind in [("llava", "CLIP"), ("smolvlm", "SmolVLM"), ("qwen2_vl", "Qwen2VL"), ("gemma3", "Gemma3"), ("pixtral", "Pixtral")]:
            self.model({"model_type": config, "vision_config": {"patch_size": 14, "image_size": 364}, "scale_factor": 2}, {"image_processor_type": f"{kind}ImageProcessor"})
            self.assertTrue(np.isfinite(self.arrays.process_images(self.folder, [file])["pixel_values"]).all())

    def test_stored_inputs(self):
        """Of ../shared/models/vlm: what transformers made of the same files."""
        models = SHARED / "models/vlm"
        if not models.is_dir():
            self.skipTest(f"{models} is not here")
        names = [name for name in ["llava", "smolvlm", "qwen2_vl"] if (models / name / "preprocessor_config.json").is_file()]
        compared = dict.fromkeys(names, 0)
        for name in names:
            for case in json.loads((models / name / "expected.json").read_text())["cases"]:
                if not case.get("images") or case["name"] == "padded_tiles_and_mask":  # text alone; zeros put in by hand
                    continue
                overrides = {"do_image_splitting": "false"} if "no_split" in case["name"] else {}
                got = self.arrays.process_images(models / name, [models / name / image for image in case["images"]], **overrides)
                got["grid_thw"] = got.get("image_grid_thw")
                for tensor, stored in case["encoder_inputs"].items():
                    wanted = np.load(models / name / stored["file"])
                    self.assertEqual((got[tensor].shape, got[tensor].dtype), (wanted.shape, wanted.dtype), (name, case["name"]))
                    self.assertTrue((got[tensor] == wanted).all(), (name, case["name"], tensor))
                    compared[name] += 1
                self.assertEqual(sum(i["tokens"] for i in self.arrays.answer["images"]), case["num_image_tokens"])
        self.assertTrue(names)
        self.assertGreater(min(compared.values()), 2, compared)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrays", required=True, help="the program vision_arrays")
    options, rest = parser.parse_known_args()
    PROGRAM = options.arrays
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
