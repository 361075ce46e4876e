#include "vision/processor.h"

#include <gtest/gtest.h>

#include <fstream>

namespace situ {
namespace {

namespace fs = std::filesystem;

// A model folder that has only what a processor reads.
class ProcessorTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "situ_vision_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  void write_llava() const {
    write("config.json", R"({"model_type": "llava", "image_token_index": 5, "vision_config": {"patch_size": 7}})");
    write("preprocessor_config.json", R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 14},
      "crop_size": {"height": 14, "width": 14}, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]})");
  }
  std::string error(const ImageOptions& options, std::vector<ImageInput> images) const {
    const Result<ImageProcessor> processor = ImageProcessor::open(folder_);
    if (!processor.is_ok()) return processor.status().message();
    return processor->process(std::move(images), options).status().message();
  }

  fs::path folder_;
};

TEST_F(ProcessorTest, PixelsOfTheCaller) {
  write_llava();
  const Result<ImageProcessor> processor = ImageProcessor::open(folder_);
  ASSERT_TRUE(processor.is_ok()) << processor.status().message();
  EXPECT_EQ(processor->family(), "llava");
  EXPECT_EQ(processor->prompt().placeholder, "<image>");
  EXPECT_EQ(processor->prompt().image_token_id, 5);
  RgbImage image(28, 14);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = i % 3 == 1 ? 255 : 0;  // green
  std::vector<ImageInput> images;
  images.push_back({.pixels = image});
  images.push_back({.pixels = image});
  const Result<Processed> processed = processor->process(std::move(images));
  ASSERT_TRUE(processed.is_ok()) << processed.status().message();
  ASSERT_EQ(processed->tensors.size(), 1U);
  const Tensor& pixels = processed->tensors[0].tensor;
  EXPECT_EQ(processed->tensors[0].name, "pixel_values");
  EXPECT_EQ(pixels.dims(), (std::vector<int64_t>{2, 3, 14, 14}));
  for (int64_t i = 0; i < pixels.count(); ++i) {
    ASSERT_EQ(pixels.view().as<float>()[i], i / (14 * 14) % 3 == 1 ? 1.0F : 0.0F) << i;
  }
  ASSERT_EQ(processed->images.size(), 2U);
  EXPECT_EQ(processed->images[0].width, 28);
  EXPECT_EQ(processed->images[0].height, 14);
  EXPECT_EQ(processed->images[0].tokens, 4);
}

TEST_F(ProcessorTest, PromptsAreExpanded) {
  const auto expanded = [&](const std::string& prompt, size_t count) {
    const Result<ImageProcessor> processor = ImageProcessor::open(folder_);
    if (!processor.is_ok()) return processor.status().message();
    std::vector<ImageInput> images(count, ImageInput{.pixels = RgbImage(14, 14)});
    const Result<Processed> processed = processor->process(std::move(images));
    if (!processed.is_ok()) return processed.status().message();
    const Result<std::string> text = processor->expand(prompt, processed->images, "<bos>");
    return text.is_ok() ? *text : text.status().message();
  };
  write_llava();
  const std::string four = "<image><image><image><image>";
  EXPECT_EQ(expanded("a <image>b<image>", 2), "a " + four + "b" + four);
  EXPECT_EQ(expanded("<image>", 1), four);
  EXPECT_EQ(expanded("a", 1), "the prompt has 0 places for images (<image>), and there are 1 images");
  EXPECT_EQ(expanded("<image><image><image>", 2),
            "the prompt has 3 places for images (<image>), and there are 2 images");
  write("config.json", R"({"model_type": "paligemma"})");
  write(
      "preprocessor_config.json",
      R"({"image_processor_type": "SiglipImageProcessor", "size": {"height": 14, "width": 14}, "image_seq_length": 2})");
  EXPECT_EQ(expanded("caption en", 1), "<image><image><bos>caption en\n");
  EXPECT_EQ(expanded("caption en", 2), "<image><image><image><image><bos>caption en\n");
  EXPECT_EQ(expanded("<image>x<image>y", 2), "<image><image>x<image><image><bos>y\n");
}

TEST_F(ProcessorTest, ImagesOfDifferentSizes) {
  write_llava();
  std::vector<ImageInput> images;
  images.push_back({.pixels = RgbImage(28, 14)});
  images.push_back({.pixels = RgbImage(14, 14)});
  EXPECT_EQ(error({.overrides = {{"do_center_crop", "false"}}}, std::move(images)),
            "images differ in size once they are resized: 28 x 14 and 14 x 14 pixels");
}

TEST_F(ProcessorTest, RefusesWhatIsNoImage) {
  write_llava();
  EXPECT_EQ(error({}, {}), "there is no image");
  EXPECT_EQ(error({}, {ImageInput{}}), "image 1: has no pixels");
  EXPECT_EQ(error({}, {ImageInput{.path = (folder_ / "none.png").string()}}),
            (folder_ / "none.png").string() + ": no such file");
  RgbImage short_of_bytes(4, 4);
  short_of_bytes.pixels.pop_back();
  EXPECT_EQ(error({}, {ImageInput{.pixels = short_of_bytes}}), "image 1: has 47 bytes, not 48");
  EXPECT_EQ(error({.limits = {.max_pixels = 15}}, {ImageInput{.pixels = RgbImage(4, 4)}}),
            "image 1: has 4 x 4 pixels, more than the limit of 15 (--max-pixels)");
}

TEST_F(ProcessorTest, FilesThatAreNoGood) {
  const auto begins = [&](const std::string& words) {
    const std::string message = error({}, {});
    return message.starts_with(folder_.string()) && message.find(words) != std::string::npos ? "" : message;
  };
  EXPECT_EQ(begins("there is no preprocessor_config.json, so only --encoder-input works"), "");
  write("preprocessor_config.json", "{");
  EXPECT_EQ(begins("not JSON"), "");
  write("preprocessor_config.json", R"({"image_processor_type": "CLIPImageProcessor"})");
  EXPECT_EQ(begins("images of this model family are not known"), "");
  write("config.json", R"({"model_type": "llava"})");
  write("preprocessor_config.json", R"({"image_processor_type": "DonutImageProcessor"})");
  EXPECT_EQ(begins("image_processor_type \"DonutImageProcessor\""), "");
  for (const char* size : {"-1", "1.5", "{\"shortest_edge\": 1e300}", "[1]", "true"}) {
    write("preprocessor_config.json",
          std::string(R"({"image_processor_type": "CLIPImageProcessor", "size": )") + size + "}");
    EXPECT_EQ(begins("preprocessor_config.json: size"), "") << size;
  }
}

}  // namespace
}  // namespace situ
