#include "pipelines/graph_files.h"

#include <algorithm>

namespace situ {

namespace fs = std::filesystem;

// Of transformers.js; of Optimum's optimiser; of sentence-transformers.
const std::vector<std::string> kVariants{"fp32",         "fp16",
                                         "q4",           "q4f16",
                                         "int8",         "uint8",
                                         "quantized",    "bnb4",
                                         "q2",           "q2f16",
                                         "q1",           "q1f16",
                                         "optimized",    "optimized_quantized",
                                         "O1",           "O2",
                                         "O3",           "O4",
                                         "qint8_arm64",  "qint8_avx2",
                                         "qint8_avx512", "qint8_avx512_vnni",
                                         "quint8_avx2"};

namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

}  // namespace

Result<VariantChoice> VariantChoice::parse(const std::vector<std::string>& wanted) {
  VariantChoice choice;
  for (const std::string& w : wanted) {
    const size_t equals = w.find('=');
    const std::string graph = equals == std::string::npos ? "" : w.substr(0, equals),
                      variant = equals == std::string::npos ? w : w.substr(equals + 1);
    if (std::find(kVariants.begin(), kVariants.end(), variant) == kVariants.end())
      return Status::error(Code::kInvalidArgument,
                           "variant '" + variant + "' is not known; known are " + joined(kVariants));
    if (equals != std::string::npos && graph.empty())
      return Status::error(Code::kInvalidArgument, "variant '" + w + "' names no graph");
    std::string& place = graph.empty() ? choice.all_ : choice.by_graph_[graph];
    if (!place.empty() && place != variant)
      return Status::error(Code::kInvalidArgument, "variants '" + place + "' and '" + variant + "' are both asked for" +
                                                       (graph.empty() ? "" : " of '" + graph + "'"));
    place = variant;
  }
  return choice;
}

const std::string& VariantChoice::of(const std::string& graph) const {
  const auto own = by_graph_.find(graph);
  return own == by_graph_.end() ? all_ : own->second;
}

// "model_q4.onnx" -> {"model", "q4"}
static std::pair<std::string, std::string> graph_and_variant(const fs::path& file) {
  const std::string stem = file.stem().string();
  const std::string* longest = nullptr;  // of "quantized" and "optimized_quantized"
  for (const std::string& v : kVariants)
    if (stem.size() > v.size() + 1 && stem.ends_with("_" + v) && (!longest || v.size() > longest->size())) longest = &v;
  if (!longest) return {stem, "fp32"};
  return {stem.substr(0, stem.size() - longest->size() - 1), *longest};
}

bool there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

std::string graph_of(const fs::path& file) { return graph_and_variant(file).first; }

std::string variant_of(const fs::path& file) { return graph_and_variant(file).second; }

GraphFiles::GraphFiles(const fs::path& folder, VariantChoice choice) : folder_(folder), choice_(std::move(choice)) {
  for (const fs::path& place : {folder, folder / "onnx"}) {
    std::error_code error;
    for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) add(it->path());
  }
}

GraphFiles::GraphFiles(const fs::path& shown, const std::vector<std::string>& names, VariantChoice choice)
    : folder_(shown), choice_(std::move(choice)) {
  for (const std::string& name : names)
    if (const fs::path parent = fs::path(name).parent_path(); parent.empty() || parent == "onnx") add(name);
}

void GraphFiles::add(const fs::path& file) {
  if (file.extension() != ".onnx") return;
  const auto [graph, variant] = graph_and_variant(file);
  files_[graph][variant].push_back(file);
}

std::vector<std::string> GraphFiles::others(const fs::path& file) const {
  const auto [graph, variant] = graph_and_variant(file);
  const auto found = files_.find(graph);
  std::vector<std::string> names;
  if (found == files_.end()) return names;
  for (const auto& [name, paths] : found->second)
    if (name != variant) names.push_back(name);
  std::stable_partition(names.begin(), names.end(), [](const std::string& v) { return v.starts_with("q4"); });
  return names;
}

Result<fs::path> GraphFiles::choose(const std::string& graph, bool or_plain) const {
  const auto found = files_.find(graph);
  if (found == files_.end()) return Status::error(Code::kNotFound, folder_.string() + ": no " + graph + ".onnx");
  const auto& variants = found->second;
  std::vector<std::string> names;
  for (const auto& [variant, paths] : variants) names.push_back(variant);
  const std::string& wanted = choice_.of(graph);
  auto chosen = variants.find(wanted.empty() ? "fp32" : wanted);
  if (chosen == variants.end() && or_plain && choice_.by_graph().count(graph) == 0) chosen = variants.find("fp32");
  if (!wanted.empty() && chosen == variants.end())
    return Status::error(Code::kInvalidArgument, folder_.string() + ": " + graph + " has no variant '" + wanted +
                                                     "'; there is " + joined(names));
  if (chosen == variants.end() && variants.size() == 1) chosen = variants.begin();
  if (chosen == variants.end())
    return Status::error(Code::kInvalidArgument, folder_.string() + ": which variant of " + graph +
                                                     " should run (--variant)? There is " + joined(names));
  if (chosen->second.size() > 1)
    return Status::error(Code::kInvalidArgument, folder_.string() + ": " + graph + " is there twice: " +
                                                     chosen->second[0].string() + " and " + chosen->second[1].string());
  return chosen->second[0];
}

Status GraphFiles::check_choice() const {
  for (const auto& [graph, variant] : choice_.by_graph()) {
    if (has(graph)) continue;
    std::vector<std::string> names;
    for (const auto& [name, variants] : files_) names.push_back(name);
    return Status::error(Code::kInvalidArgument, folder_.string() + ": there is no graph '" + graph +
                                                     "' to choose a variant of; there is " + joined(names));
  }
  return Status::ok();
}

}  // namespace situ
