"""Images from Python: files, arrays and PIL images are the same images. tests/python_test.py runs them."""
import unittest

import numpy as np
import situ

import image_files
import tiny_vision
from python_case import PythonTest
from vision_test import SHARED


class Painted:
    """What is used of a PIL image, for environments without Pillow."""

    def __init__(self, pixels):
        self.pixels = pixels

    def convert(self, mode):
        assert mode == "RGB"
        return self.pixels


class ImagesTest(PythonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not (SHARED / "llava").exists():
            raise unittest.SkipTest(f"{SHARED} is not there")
        cls.seeing = situ.load(tiny_vision.with_words(SHARED / "llava", cls.folder / "llava"))
        cls.pixels = np.random.default_rng(3).integers(0, 256, (2, 40, 52, 3), np.uint8)
        cls.files = [cls.folder / f"{i}.png" for i in range(2)]
        for file, pixels in zip(cls.files, cls.pixels):
            file.write_bytes(image_files.png(pixels.reshape(40, -1).tolist(), 8, 2))

    def answer(self, prompt, *images, **options):
        answer = self.seeing.generate(prompt, images=images, max_new_tokens=6, ignore_eos=True, logprobs=1, **options)
        self.assertEqual(answer.bytes_copied_per_token, 0)
        return answer.output_ids, [p.logprob for p in answer.logprobs]

    def test_files_arrays_and_pillow_images_are_one(self):
        wanted = self.answer("a", *self.files)
        self.assertNotEqual(wanted, self.answer("a", *self.files[::-1]))
        first, second = self.pixels
        for images in ((str(self.files[0]), second), (first, second), (first[:, ::-1][:, ::-1], np.asfortranarray(second)), (Painted(first), self.files[1])):
            self.assertEqual(self.answer("a", *images), wanted)
        try:
            from PIL import Image
        except ImportError:
            return
        self.assertEqual(self.answer("a", *map(Image.fromarray, self.pixels)), wanted)
        self.assertEqual(self.answer("a", *map(Image.open, self.files)), wanted)

    def test_prompts(self):
        """By text, placeholders, the template and ids; as a stream too."""
        places = [500] * 16
        for prompt, options, ids in (("a", {}, [*places, 11]), ("a <image> b", {}, [11, *places, 12]), ("a", {"chat": True}, [13, *places, 11])):
            self.assertEqual(self.answer(prompt, self.pixels[0], **options), self.answer(ids, self.pixels[0]))
            stream = self.seeing.stream(prompt, images=[self.pixels[0]], max_new_tokens=6, ignore_eos=True, **options)
            self.assertEqual([t.id for t in stream], self.answer(ids, self.files[0])[0])
        self.assertEqual(self.answer("a"), self.answer([11]))

    def test_refused(self):
        pixels = self.pixels[0]
        for images in (pixels, self.files[0], str(self.files[0]), Painted(pixels), [pixels.astype(np.float32)], [pixels[:, :, :1]], [pixels[0]], [None], [[pixels]]):
            with self.assertRaises(TypeError):
                self.seeing.generate("a", images=images)
        with self.assertRaisesRegex(TypeError, "one prompt"):
            self.seeing.generate(["a", "b"], images=[pixels])
        for prompt, images, words in (("a", [self.folder / "none.png"], "none.png: no such file"), ("<image> <image>", [pixels], "2 places"), ("a", [pixels[:0]], "image 0: has no pixels"),
                                      ([1, 2], [pixels], "500"), ("a", [np.broadcast_to(pixels[:1, :1], (10**4, 10**4, 3))], "image 0: .*64000000")):
            with self.assertRaisesRegex(situ.SituError, words):
                self.seeing.generate(prompt, images=images)
        with self.assertRaisesRegex(situ.SituError, "vision encoder"):
            self.model.generate([1, 2], images=[pixels])
