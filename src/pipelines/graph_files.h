// The graphs of a model folder, by name and precision: "decoder_model_merged_q4.onnx" in the folder or in its onnx/.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace situ {

// Suffixes that exporters put behind a graph's name; "fp32" is the file without one.
extern const std::vector<std::string> kVariants;

// "onnx/model_q4.onnx" -> "model".
std::string graph_of(const std::filesystem::path& file);

// "onnx/model_q4.onnx" -> "q4", "onnx/model.onnx" -> "fp32".
std::string variant_of(const std::filesystem::path& file);

// Whether a file has that name, a link to nothing too.
bool there(const std::filesystem::path& path);

// Which variant of each graph is asked for.
class VariantChoice {
 public:
  // `wanted`: "q4" for all graphs, "encoder_model=fp16" for one. Errors: an unknown variant (lists the known ones), or
  // one graph named twice.
  static Result<VariantChoice> parse(const std::vector<std::string>& wanted);
  // "": none is asked for.
  const std::string& of(const std::string& graph) const;
  const std::map<std::string, std::string>& by_graph() const { return by_graph_; }

 private:
  std::string all_;
  std::map<std::string, std::string> by_graph_;
};

class GraphFiles {
 public:
  // Looks into `folder` and `folder`/onnx, which are equal places.
  GraphFiles(const std::filesystem::path& folder, VariantChoice choice);
  // Of a folder that is not here: `names` are paths in it, `shown` is what errors call it.
  GraphFiles(const std::filesystem::path& shown, const std::vector<std::string>& names, VariantChoice choice);

  bool has(const std::string& graph) const { return files_.count(graph) != 0; }
  // The file of a graph: the variant that is asked for, else that without suffix, else the only one. Errors: none, or
  // several and nothing says which, or the same name in both places; they list what is there.
  // `or_plain`: where it has not the variant that is asked for of all graphs, the file without suffix will do.
  Result<std::filesystem::path> choose(const std::string& graph, bool or_plain = false) const;
  // The other variants of the graph whose file this is, those of 4 bits first.
  std::vector<std::string> others(const std::filesystem::path& file) const;
  // Error: a graph that --variant names is not there.
  Status check_choice() const;
  const std::map<std::string, std::map<std::string, std::vector<std::filesystem::path>>>& all() const { return files_; }

 private:
  void add(const std::filesystem::path& file);

  std::filesystem::path folder_;
  VariantChoice choice_;
  std::map<std::string, std::map<std::string, std::vector<std::filesystem::path>>> files_;  // graph -> variant -> where
};

}  // namespace situ
