// Tensors whose bytes stand in files beside the model (TensorProto.external_data).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/mapped_file.h"

namespace situ::onnx {

// The external files of one model; each is mapped once, at its first use.
class ExternalFiles {
 public:
  explicit ExternalFiles(std::filesystem::path model_path) : model_path_(std::move(model_path)) {}

  // Maps `location`, a path relative to the model's folder. Refuses absolute paths, NUL, and what
  // leads outside of the folder, by ".." or by links (that of the model's path, or that of the file it links to: caches
  // such as the Hugging Face hub's keep a model's files as links into one folder of blobs); from a snapshot of such a
  // cache a link may lead anywhere below the cache. Throws ImportError.
  std::shared_ptr<const MappedFile> map(std::string_view location);

  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }

 private:
  std::filesystem::path locate(std::string_view location) const;

  std::filesystem::path model_path_;
  std::map<std::string, std::shared_ptr<const MappedFile>, std::less<>> by_location_;
  std::map<std::filesystem::path, std::shared_ptr<const MappedFile>> by_path_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

}  // namespace situ::onnx
