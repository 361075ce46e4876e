// What a model says of tensors whose bytes are in other files. Input: a line key=value is an entry of a tensor's
// external_data; a line that is empty begins the next tensor; the line "type N A B ..." gives its type and dims.
#include <sstream>

#include "fuzz_input.h"
#include "imported.h"

namespace situ::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path model_folder() {
  const fs::path model = folder().path() / "model";
  folder().write("outside.bin", std::string(64, 'o'));
  folder().write("model/data.bin", std::string(64, 'x'));
  folder().write("model/below/more.bin", std::string(5000, 'y'));
  folder().write("model/empty.bin", "");
  std::error_code there;  // in the replay of many inputs
  fs::create_symlink("../outside.bin", model / "out.bin", there);
  fs::create_symlink("data.bin", model / "link.bin", there);
  fs::create_symlink("loop.bin", model / "loop.bin", there);
  return model;
}

struct Entry {
  int type = 1;
  std::vector<int64_t> dims{4};
  std::vector<std::pair<std::string, std::string>> data;
};

std::vector<Entry> entries(const std::string& text) {
  std::vector<Entry> all(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (line.empty()) {
      all.emplace_back();
    } else if (std::istringstream numbers(line.substr(std::min<size_t>(5, line.size()))); line.starts_with("type ")) {
      all.back().dims.clear();
      numbers >> all.back().type;
      for (int64_t dim; numbers >> dim;) all.back().dims.push_back(dim);
    } else if (equals != std::string::npos) {
      all.back().data.emplace_back(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return all;
}

}  // namespace
}  // namespace situ::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace situ;
  static const std::filesystem::path model = fuzz::model_folder();
  onnx::test::GraphText graph;
  for (const fuzz::Entry& e : fuzz::entries(std::string(reinterpret_cast<const char*>(data), size))) {
    const std::string name = "t" + std::to_string(graph.initializers.size());
    graph.initializers.push_back(onnx::test::external_tensor(name, static_cast<DType>(e.type), e.dims, e.data));
  }
  fuzz::folder().write("model/model.onnx", onnx::test::model(graph.bytes()));
  const Result<ImportedModel> imported = import_onnx(model / "model.onnx");
  if (fuzz::refused_with_code(imported.status())) return 0;
  fuzz::expect_sound(*imported);
  for (const auto& file : imported->files) EXPECT_EQ(file->path.find("outside"), std::string::npos) << file->path;
  return 0;
}
