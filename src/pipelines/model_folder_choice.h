// Which model of a list of files to run: of a repository whose files are not here yet, and may hold many.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace situ {

struct ListedFile {
  std::string path;  // "onnx/model_q4.onnx"
  int64_t size = 0;
};

struct FolderListing {
  std::string name;  // "ORG/REPO": for commands that errors name, and for words that it holds
  std::vector<ListedFile> files;
  std::map<std::string, std::string> texts;  // of config.json and each genai_config.json, by path
  std::vector<std::string> processor;        // suffixes of files that are made for this processor, best first
};

struct FolderChoice {
  std::string folder;                 // "": the root; else the sub-folder that is the model
  std::string file;                   // not empty: this graph alone, not the folder
  std::vector<std::string> graphs;    // that would be opened, by their paths in the listing
  std::vector<std::string> variants;  // what LoadOptions::variants then has to say
  std::string label;                  // "q4", or a builder's folder: what VARIANT says
  std::string kind;                   // "decoder", "encoder-decoder", "embeddings", "cross-encoder"
  struct Other {
    std::string label;
    int64_t bytes = 0;
  };
  std::vector<Other> others;  // whole ones that were not chosen
};

// The names of files that this processor's instructions are for, as sentence-transformers writes them, best first.
std::vector<std::string> processor_variants();

// The paths of `listing` that are a graph with its data: the graph, and files whose names begin with its name.
std::vector<const ListedFile*> graph_with_data(const FolderListing& listing, const std::string& graph);

// `variant`: "", else a suffix (q4), a folder or a graph's path, in this order. `wanted`: LoadOptions::variants, which
// a `variant` excludes. A folder with a genai_config.json whose graphs are there comes first, if it is not for another
// device: rank int4 with acc-level-4, int4, cpu, the root. Else precisions in an order that depends on what the model
// does; one counts only where it is whole and smaller. Errors: kUnsupportedModel: no graphs that can be opened;
// kInvalidArgument: none of that name, or several are as good; with a reason for each whose advice is the name to type.
Result<FolderChoice> choose_model(const FolderListing& listing, const std::string& variant,
                                  const std::vector<std::string>& wanted);

}  // namespace situ
