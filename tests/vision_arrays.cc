// What src/vision makes of images, as raw arrays, for tests in Python: vision_arrays < COMMANDS > ARRAYS
//
// A command is a line of fields with tabs between them:
//   decode FILE MAX_PIXELS | resize FILE MAX_PIXELS WIDTH HEIGHT FILTER | process FOLDER N KEY=VALUE... (N of them)
//   FILE...
// Its answer is a line of JSON, {"error": message} or {"tensors": [{name, type, dims}], "images": [...]}, and then the
// bytes of the tensors one after the other.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "vision/processor.h"
#include "vision/resize.h"

namespace situ {
namespace {

using Json = nlohmann::json;
using Fields = std::vector<std::string>;

// More than any command has.
constexpr size_t kFields = 6;

Fields split(const std::string& line) {
  Fields fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// Resident, at most so far, without what the process that started this one had (ru_maxrss has it in).
int64_t peak_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word && word != "VmHWM:") continue;
  status >> kib;
  return kib;
}

void answer(Json json, const Status& status) {
  if (!status.is_ok()) json = {{"error", status.message()}, {"code", code_name(status.code())}};
  json["peak_kib"] = peak_kib();
  std::cout << json.dump() << '\n';
}

void answer_image(const Result<RgbImage>& image) {
  if (!image.is_ok()) return answer({}, image.status());
  answer({{"tensors", {{{"name", "rgb"}, {"type", "uint8"}, {"dims", {image->height, image->width, 3}}}}}},
         Status::ok());
  std::cout.write(reinterpret_cast<const char*>(image->pixels.data()),
                  static_cast<std::streamsize>(image->pixels.size()));
}

Json image_json(const ProcessedImage& image) {
  Json pieces = Json::array();
  for (const ExpansionPiece& piece : image.expansion)
    pieces.push_back({piece.text, piece.id, piece.count, piece.image});
  return {{"width", image.width}, {"height", image.height}, {"tokens", image.tokens}, {"expansion", pieces}};
}

void process(const Fields& fields) {
  const Result<ImageProcessor> processor = ImageProcessor::open(fields[1]);
  if (!processor.is_ok()) return answer({}, processor.status());
  ImageOptions options;
  const size_t first = 3 + std::stoul(fields[2]);
  for (size_t i = 3; i < first && i < fields.size(); ++i) {
    const size_t equal = fields[i].find('=');
    options.overrides[fields[i].substr(0, equal)] = fields[i].substr(equal + 1);
  }
  std::vector<ImageInput> images;
  for (size_t i = first; i < fields.size(); ++i) images.push_back({.path = fields[i]});
  const Result<Processed> processed = processor->process(std::move(images), options);
  if (!processed.is_ok()) return answer({}, processed.status());
  Json json{{"family", processor->family()}, {"images", Json::array()}, {"tensors", Json::array()}};
  for (const ProcessedImage& image : processed->images) json["images"].push_back(image_json(image));
  for (const auto& [name, tensor] : processed->tensors) {
    json["tensors"].push_back({{"name", name}, {"type", dtype_name(tensor.type())}, {"dims", tensor.dims()}});
  }
  answer(json, Status::ok());
  for (const auto& [name, tensor] : processed->tensors) {
    std::cout.write(reinterpret_cast<const char*>(tensor.view().data), static_cast<std::streamsize>(tensor.bytes()));
  }
}

int run() {
  std::string line;
  while (std::getline(std::cin, line)) {
    Fields fields = split(line);
    if (fields[0] == "process") {
      process(fields);
    } else {
      fields.resize(kFields);
      const ImageLimits limits{.max_pixels = std::stoll(fields[2])};
      Result<RgbImage> image = read_image(fields[1], limits);
      if (image.is_ok() && fields[0] == "resize") {
        image = resize(*image, std::stoi(fields[3]), std::stoi(fields[4]), static_cast<Resample>(std::stoi(fields[5])));
      }
      answer_image(image);
    }
    std::cout.flush();
  }
  return 0;
}

}  // namespace
}  // namespace situ

int main() { return situ::run(); }
