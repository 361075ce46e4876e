#include "pipelines/other_variants.h"

#include <algorithm>

#include "pipelines/graph_files.h"

namespace situ {
namespace {

std::string joined_names(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : between) + w;
  return text;
}

}  // namespace

std::string other_variants(const ModelFolder& folder, const ModelFiles& files, const std::vector<std::string>& wanted,
                           bool by_file) {
  const Result<VariantChoice> choice = VariantChoice::parse(wanted);
  if (!choice.is_ok()) return "";
  const GraphFiles there(folder.graphs, *choice);
  std::vector<std::string> graphs, common;
  files.each([&](const ImportedModel& m) {
    if (m.files.empty() || !lacks_operators(m.graph)) return;
    const std::string& file = m.files[0]->path;
    const std::vector<std::string> others = there.others(file);
    if (graphs.empty()) common = others;
    std::erase_if(common, [&](const std::string& v) { return std::count(others.begin(), others.end(), v) == 0; });
    graphs.push_back(graph_of(file));
  });
  if (common.empty()) return "";
  const std::string best = common.front(),
                    also =
                        common.size() > 1 ? " (or " + joined_names({common.begin() + 1, common.end()}, ", ") + ")" : "";
  std::vector<std::string> options;
  for (const std::string& graph : graphs) {
    std::string option = by_file                           ? graph + (best == "fp32" ? "" : "_" + best) + ".onnx"
                         : choice->by_graph().count(graph) ? "--variant " + graph + "=" + best
                                                           : "--variant " + best;
    if (std::count(options.begin(), options.end(), option) == 0) options.push_back(std::move(option));
  }
  return "there are other variants: take " + joined_names(options, " ") + also;
}

}  // namespace situ
