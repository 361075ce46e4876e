#include "pipelines/model_folder_choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "pipelines/graph_files.h"
#include "pipelines/model_folder.h"

namespace situ {
namespace {

using ListingJson = nlohmann::json;

constexpr double kSmaller4 = 0.9, kSmaller8 = 0.7;  // of fp16, of fp32
constexpr int64_t kPlainEncoder = 1'000'000'000;    // bytes up to which an encoder of pictures stays as it is
const std::vector<std::string> kOfDecoders{"q4", "q4f16", "quantized", "uint8", "int8", "fp16", "fp32"};
// Parts that choose for themselves: what a table of embeddings or an encoder of pictures loses, others do not.
const std::vector<std::string> kOwnChoice{"embed_tokens", "vision_encoder", "audio_encoder"};
const std::set<std::string> kOtherDevices{"cuda",   "gpu",      "webgpu", "dml",           "directml", "qnn",
                                          "npu",    "hybrid",   "rocm",   "migraphx",      "vitisai",  "ryzenai",
                                          "coreml", "openvino", "trtrtx", "nvtensorrtrtx", "tensorrt", "webnn"};

bool holds(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::set<std::string> name_words(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + "/") {
    if (std::string_view("/-_. ").find(c) == std::string_view::npos) {
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      continue;
    }
    words.insert(std::exchange(word, ""));
  }
  return words;
}

ListingJson listed_json(const FolderListing& listing, const std::string& path) {
  const auto found = listing.texts.find(path);
  ListingJson json = found == listing.texts.end() ? ListingJson() : ListingJson::parse(found->second, nullptr, false);
  return json.is_object() ? json : ListingJson::object();
}

std::string in_folder(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

// Bits that a precision's name promises; 0: as many as the model was made with.
int bits_of(const std::string& variant) {
  if (variant == "q4" || variant == "q4f16" || variant == "bnb4") return 4;
  if (variant == "quantized" || variant.find("int8") != std::string::npos) return 8;
  return variant == "fp16" ? 16 : 0;
}

// -- folders that onnxruntime-genai's builder wrote

struct BuilderUnit {
  std::string folder;
  std::vector<std::string> graphs;
  bool other_device = false;
  int rank = 0;  // the lower the better
};

void add_providers(const ListingJson& json, std::set<std::string>* words) {
  for (const auto& [key, value] : json.items()) {
    if (key == "provider_options" && value.is_array())
      for (const ListingJson& provider : value)
        for (const auto& each : provider.items()) words->merge(name_words(each.key()));
    if (value.is_structured()) add_providers(value, words);
  }
}

class ModelChooser {
 public:
  ModelChooser(const FolderListing& listing, const std::vector<std::string>& wanted)
      : listing_(listing), wanted_(wanted) {
    for (const ListedFile& f : listing.files) names_.insert(f.path);
  }

  Result<FolderChoice> run(const std::string& variant) {
    if (std::none_of(names_.begin(), names_.end(), [](const std::string& n) { return n.ends_with(".onnx"); }))
      return no_graphs();
    find_units();
    const std::vector<std::string> suffixed = names_in("");
    const GraphFiles plain(listing_.name, suffixed, *VariantChoice::parse({}));
    const auto has = [&](const auto& graph) { return graph.second.count(variant) != 0; };
    if (!variant.empty() && holds(kVariants, variant) && std::any_of(plain.all().begin(), plain.all().end(), has))
      return of_suffixes("", {variant});
    if (!variant.empty()) return of_place(variant);
    if (!wanted_.empty()) return of_suffixes("", {});
    if (!units_.empty())
      if (Result<FolderChoice> unit = best_unit(units_); unit.is_ok() || unit.status().code() != Code::kNotFound)
        return unit;
    if (!suffixed.empty()) return of_suffixes("", {});
    if (!units_.empty())
      return Status::error(Code::kUnsupportedModel, listing_.name + ": its models are for other devices (" +
                                                        units_[0].folder + "), and none is for a CPU")
          .because(commands(folders()));
    return several("which folder should run?", folders());
  }

 private:
  void find_units() {
    for (const auto& [path, text] : listing_.texts) {
      const size_t slash = path.rfind('/');
      if (path.substr(slash == std::string::npos ? 0 : slash + 1) != "genai_config.json") continue;
      BuilderUnit unit;
      unit.folder = slash == std::string::npos ? "" : path.substr(0, slash);
      const ListingJson json = listed_json(listing_, path);
      const auto model = json.find("model");
      if (model == json.end() || !model->is_object() || !model->contains("decoder")) continue;
      bool whole = true;
      for (const char* part : {"decoder", "encoder", "vision", "speech", "embedding"}) {
        const auto of = model->find(part);
        if (of == model->end() || !of->is_object()) continue;
        const auto name = of->find("filename");
        const std::string usual = std::string(part) == "decoder" ? "model.onnx" : std::string(part) + ".onnx";
        const std::string file =
            in_folder(unit.folder, name != of->end() && name->is_string() ? name->get<std::string>() : usual);
        whole = whole && names_.count(file) != 0;
        unit.graphs.push_back(file);
      }
      if (!whole) continue;
      std::set<std::string> words = name_words(unit.folder + "/" + listing_.name);
      const bool int4 = words.count("int4") != 0, cpu = words.count("cpu") != 0;
      const bool fast = unit.folder.find("acc-level-4") != std::string::npos;
      unit.rank = cpu && int4 && fast ? 0 : cpu && int4 ? 1 : cpu ? 2 : 3;
      add_providers(*model, &words);
      unit.other_device =
          std::any_of(words.begin(), words.end(), [](const std::string& w) { return kOtherDevices.count(w) != 0; });
      taken_.insert(unit.graphs.begin(), unit.graphs.end());
      units_.push_back(std::move(unit));
    }
  }

  // kNotFound: all are for other devices.
  Result<FolderChoice> best_unit(const std::vector<BuilderUnit>& units) const {
    std::vector<BuilderUnit> best;
    for (const BuilderUnit& u : units) {
      if (u.other_device) continue;
      if (!best.empty() && u.rank < best[0].rank) best.clear();
      if (best.empty() || u.rank == best[0].rank) best.push_back(u);
    }
    if (best.empty()) return Status::error(Code::kNotFound, listing_.name + ": no folder for a CPU");
    keep_newest(&best);
    if (best.size() == 1) return of_unit(best[0]);
    std::vector<std::string> names;
    for (const BuilderUnit& u : best) names.push_back(u.folder);
    return several("which folder should run?", names);
  }

  // Of ".../v2" and ".../v4" of one folder the last.
  static void keep_newest(std::vector<BuilderUnit>* units) {
    const auto version = [](const std::string& folder) -> std::pair<std::string, int> {
      const size_t slash = folder.rfind('/');
      const std::string last = folder.substr(slash == std::string::npos ? 0 : slash + 1);
      if (last.size() < 2 || last.size() > 6 || last[0] != 'v' ||
          last.find_first_not_of("0123456789", 1) != std::string::npos)
        return {"", -1};
      return {folder.substr(0, folder.size() - last.size()), std::stoi(last.substr(1))};
    };
    const auto [parent, none] = version(units->front().folder);
    for (const BuilderUnit& u : *units)
      if (const auto [other, number] = version(u.folder); number < 0 || other != parent) return;
    std::sort(units->begin(), units->end(), [&](const BuilderUnit& a, const BuilderUnit& b) {
      return version(a.folder).second > version(b.folder).second;
    });
    units->resize(1);
  }

  FolderChoice of_unit(const BuilderUnit& unit) const {
    FolderChoice choice;
    choice.folder = choice.label = unit.folder;
    choice.kind = "decoder";
    choice.graphs = unit.graphs;
    for (const BuilderUnit& u : units_)
      if (u.folder != unit.folder && !u.other_device) choice.others.push_back({u.folder, bytes_of(u.graphs)});
    return choice;
  }

  // VARIANT as a folder, or as the path of a graph.
  Result<FolderChoice> of_place(const std::string& place) {
    const auto below = [&](const std::string& path) { return path == place || path.starts_with(place + "/"); };
    std::vector<BuilderUnit> units;
    for (const BuilderUnit& u : units_) {
      if (u.folder == place) return of_unit(u);
      if (below(u.folder)) units.push_back(u);
    }
    if (!units.empty()) {
      Result<FolderChoice> unit = best_unit(units);
      if (unit.is_ok() || unit.status().code() != Code::kNotFound) return unit;
      std::vector<std::string> names;
      for (const BuilderUnit& u : units) names.push_back(u.folder);
      return several("which folder should run? All in '" + place + "' are for other devices", names);
    }
    if (!names_in(place).empty()) return of_suffixes(place, {});
    if (names_.count(place) != 0 && place.ends_with(".onnx")) return of_graph(place);
    std::vector<std::string> inner;
    for (const std::string& f : folders())
      if (below(f)) inner.push_back(f);
    if (!inner.empty()) return several("which folder of '" + place + "' should run?", inner);
    return Status::error(Code::kInvalidArgument,
                         listing_.name + ": there is no precision, folder or graph '" + place + "'")
        .because(commands(labels("")));
  }

  // A graph by its path: of its folder where that opens it, with the tokenizer that is there; else alone.
  Result<FolderChoice> of_graph(const std::string& path) const {
    std::string folder = std::filesystem::path(path).parent_path().generic_string();
    if (folder == "onnx" || folder.ends_with("/onnx"))
      folder = std::filesystem::path(folder).parent_path().generic_string();
    const std::string pin = graph_of(path) + "=" + variant_of(path);
    const Result<Opened> opened = open(folder, {pin});
    if (opened.is_ok() && holds(opened->graphs, path)) {
      const GraphFiles files(listing_.name, names_in(folder), *VariantChoice::parse({}));
      return made(folder, kind_of(folder, files), *opened, path,
                  [&](const std::string& other) { return open(folder, {other}); });
    }
    FolderChoice choice;
    choice.file = choice.label = path;
    choice.graphs = {path};
    return choice;
  }

  // -- folders with a precision in the names of files

  // The graphs of a folder and of its onnx/, as names in it.
  std::vector<std::string> names_in(const std::string& folder) const {
    std::vector<std::string> names;
    for (const std::string& path : names_) {
      if (!path.ends_with(".onnx") || taken_.count(path) != 0) continue;
      if (!folder.empty() && !path.starts_with(folder + "/")) continue;
      const std::string name = folder.empty() ? path : path.substr(folder.size() + 1);
      if (name.find('/') == std::string::npos || (name.starts_with("onnx/") && name.find('/', 5) == std::string::npos))
        names.push_back(name);
    }
    return names;
  }

  // Folders that hold graphs.
  std::vector<std::string> folders() const {
    std::set<std::string> found;
    for (const std::string& path : names_)
      if (const size_t slash = path.rfind('/'); path.ends_with(".onnx") && slash != std::string::npos)
        found.insert(path.substr(0, slash));
    return {found.begin(), found.end()};
  }

  // What VARIANT may be: precisions, or the paths of graphs that are there twice, and folders of builders.
  std::vector<std::string> labels(const std::string& folder) const {
    std::set<std::string> found, twice;
    const GraphFiles files(listing_.name, names_in(folder), *VariantChoice::parse({}));
    for (const auto& [graph, variants] : files.all()) {
      for (const auto& [variant, paths] : variants) {
        found.insert(variant);
        for (const std::filesystem::path& path : paths)
          if (paths.size() > 1) twice.insert(in_folder(folder, path.string()));
      }
    }
    if (!twice.empty()) return {twice.begin(), twice.end()};
    std::vector<std::string> all(found.begin(), found.end());
    for (const BuilderUnit& u : units_)
      if (!u.folder.empty() && found.count(u.folder) == 0) all.push_back(u.folder);
    return all.empty() ? folders() : all;
  }

  struct Opened {
    std::vector<std::string> graphs;     // by their paths in the listing
    std::vector<std::string> followers;  // without those that choose for themselves
  };

  Result<Opened> open(const std::string& folder, const std::vector<std::string>& pins) const {
    Result<VariantChoice> choice = VariantChoice::parse(pins);
    if (!choice.is_ok()) return choice.status().with_context(listing_.name);
    const GraphFiles files(folder.empty() ? listing_.name : listing_.name + ":" + folder, names_in(folder), *choice);
    SITU_RETURN_IF_ERROR(files.check_choice());
    ModelFolder m;
    m.folder = folder.empty() ? listing_.name : listing_.name + ":" + folder;
    SITU_RETURN_IF_ERROR(find_model_file(files, &m));
    Opened opened;
    std::vector<std::filesystem::path> found{m.encoder_file, m.first_file, m.model_file, m.lookup_file};
    for (const MediaFile& media : m.media_files) found.push_back(media.file);
    for (const std::filesystem::path& file : found) {
      if (file.empty()) continue;
      const std::string path = in_folder(folder, file.string());
      opened.graphs.push_back(path);
      if (!holds(kOwnChoice, graph_of(path))) opened.followers.push_back(path);
    }
    return opened;
  }

  int64_t bytes_of(const std::vector<std::string>& graphs) const {
    int64_t bytes = 0;
    for (const std::string& g : graphs)
      for (const ListedFile* f : graph_with_data(listing_, g)) bytes += f->size;
    return bytes;
  }

  // Whether so many bytes are as few as the precision's name promises, beside what the others take (0: not there).
  static bool is_smaller(const std::string& variant, int64_t bytes, int64_t fp16, int64_t fp32) {
    const int bits = bits_of(variant);
    if (fp32 * 2 < bytes) fp32 = 0;  // its weights are in files that its name does not tell
    if (fp16 * 2 < bytes) fp16 = 0;
    const double most = bits == 4 && fp16 > 0   ? kSmaller4 * static_cast<double>(fp16)
                        : bits == 4 && fp32 > 0 ? kSmaller4 * static_cast<double>(fp32) / 2
                        : bits == 8 && fp32 > 0 ? kSmaller8 * static_cast<double>(fp32)
                                                : static_cast<double>(INT64_MAX);
    return static_cast<double>(bytes) <= most;
  }

  // The precision of a part that chooses for itself: "graph=variant", or "" where it has one only.
  std::string own_choice(const std::string& graph,
                         const std::map<std::string, std::vector<std::filesystem::path>>& variants,
                         const std::string& folder) const {
    std::map<std::string, int64_t> sizes;
    for (const auto& [variant, paths] : variants) sizes[variant] = bytes_of({in_folder(folder, paths[0].string())});
    const auto size = [&](const char* name) { return sizes.count(name) != 0 ? sizes[name] : 0; };
    const int64_t fp16 = size("fp16"), fp32 = size("fp32");
    if (graph != "embed_tokens") {
      if (fp32 > 0 && fp32 <= kPlainEncoder) return graph + "=fp32";
      for (const char* name : {"fp16", "quantized", "uint8", "int8", "fp32"})
        if (size(name) > 0) return graph + "=" + name;
    }
    std::string best;
    for (const std::string& name : kOfDecoders)
      if (sizes.count(name) != 0 && is_smaller(name, sizes[name], fp16, fp32) &&
          (best.empty() || sizes[name] < sizes[best]))
        best = name;
    if (best.empty()) best = sizes.begin()->first;
    return graph + "=" + best;
  }

  bool generates_text(const std::string& folder) const {
    if (names_.count(in_folder(folder, "modules.json")) != 0 || names_.count("modules.json") != 0) return false;
    ListingJson config = listed_json(listing_, in_folder(folder, "config.json"));
    if (config.empty()) config = listed_json(listing_, "config.json");
    if (config.value("is_encoder_decoder", ListingJson(false)) == ListingJson(true)) return false;
    const ListingJson architectures = config.value("architectures", ListingJson::array());
    bool other = false;
    for (const ListingJson& a : architectures) {
      const std::string name = a.is_string() ? a.get<std::string>() : "";
      for (const char* end : {"ForSequenceClassification", "ForMaskedLM", "ForTokenClassification", "Model"})
        other = other || (name.ends_with(end) && !name.ends_with("LMHeadModel"));
    }
    return !other;
  }

  std::string kind_of(const std::string& folder, const GraphFiles& files) const {
    const bool decoder =
        files.has("decoder_model_merged") || files.has("decoder_with_past_model") || files.has("decoder_model");
    if (files.has("encoder_model") && decoder) return "encoder-decoder";
    if (decoder || (!files.has("encoder_model") && generates_text(folder))) return "decoder";
    for (const std::string& path : {in_folder(folder, "config.json"), std::string("config.json")})
      if (const ListingJson list = listed_json(listing_, path).value("architectures", ListingJson()); list.is_array())
        for (const ListingJson& a : list)
          if (a.is_string() && a.get<std::string>().ends_with("ForSequenceClassification")) return "cross-encoder";
    return "embeddings";
  }

  std::vector<std::string> preference(const std::string& kind) const {
    if (kind == "decoder") return kOfDecoders;
    std::vector<std::string> order{"quantized"};
    order.insert(order.end(), listing_.processor.begin(), listing_.processor.end());
    for (const char* more : {"uint8", "int8", "fp16", "fp32"}) order.push_back(more);
    return order;
  }

  // `only`: this precision.
  Result<FolderChoice> of_suffixes(const std::string& folder, const std::vector<std::string>& only) {
    const GraphFiles files(listing_.name, names_in(folder), *VariantChoice::parse({}));
    Result<VariantChoice> asked = VariantChoice::parse(wanted_);
    if (!asked.is_ok()) return asked.status().with_context(listing_.name);
    std::vector<std::string> order = only, pins;
    for (const std::string& w : wanted_) w.find('=') == std::string::npos ? order.push_back(w) : pins.push_back(w);
    const bool named = !order.empty();
    const std::string kind = kind_of(folder, files);
    if (!named) order = preference(kind);
    const bool media = files.has("embed_tokens");
    for (const auto& [graph, variants] : files.all()) {
      const bool follows = named && variants.count(order[0]) != 0;
      if (media && holds(kOwnChoice, graph) && !follows && asked->by_graph().count(graph) == 0)
        pins.push_back(own_choice(graph, variants, folder));
    }
    const auto open_all = [&](const std::string& variant) {
      std::vector<std::string> all = pins;
      if (!variant.empty()) all.push_back(variant);
      return open(folder, all);
    };
    const auto weight = [&](const char* variant) {
      const Result<Opened> opened = open_all(variant);
      return opened.is_ok() ? bytes_of(opened->followers) : 0;
    };
    const int64_t fp16 = named ? 0 : weight("fp16"), fp32 = named ? 0 : weight("fp32");
    for (const std::string& variant : order) {
      const Result<Opened> opened = open_all(variant);
      if (!opened.is_ok() && named) return opened.status().because(commands(labels(folder)));
      if (!opened.is_ok() || (!named && !is_smaller(variant, bytes_of(opened->followers), fp16, fp32))) continue;
      return made(folder, kind, *opened, variant, open_all);
    }
    const Result<Opened> opened = open_all("");  // one that no list has
    if (!opened.is_ok()) return opened.status().because(commands(labels(folder)));
    return made(folder, kind, *opened, variant_of(opened->followers.back()), open_all);
  }

  template <typename OpenAll>
  FolderChoice made(const std::string& folder, const std::string& kind, const Opened& opened, const std::string& label,
                    OpenAll open_all) const {
    FolderChoice choice;
    choice.folder = folder;
    choice.kind = kind;
    choice.graphs = opened.graphs;
    choice.label = label;
    for (const std::string& g : opened.graphs) choice.variants.push_back(graph_of(g) + "=" + variant_of(g));
    for (const std::string& other : kVariants) {
      if (other == label) continue;
      if (const Result<Opened> o = open_all(other); o.is_ok()) choice.others.push_back({other, bytes_of(o->graphs)});
    }
    return choice;
  }

  // -- errors

  Reasons commands(const std::vector<std::string>& labels) const {
    Reasons reasons;
    for (const std::string& label : labels)
      reasons.push_back({.op = "", .detail = label, .advice = listing_.name + ":" + label});
    return reasons;
  }

  Status several(const std::string& question, const std::vector<std::string>& labels) const {
    return Status::error(Code::kInvalidArgument, listing_.name + ": " + question).because(commands(labels));
  }

  Status no_graphs() const {
    const auto any = [&](const char* ending) {
      return std::any_of(names_.begin(), names_.end(), [&](const std::string& n) { return n.ends_with(ending); });
    };
    const std::string make = any(".safetensors") || any(".bin") || any(".pt")
                                 ? "; it can be made: optimum-cli export onnx --model " + listing_.name + " FOLDER"
                             : any(".gguf") ? "; it has GGUF files, which are for other programs"
                                            : "";
    return Status::error(Code::kUnsupportedModel, listing_.name + ": no .onnx file in this repository" + make);
  }

  const FolderListing& listing_;
  const std::vector<std::string>& wanted_;
  std::set<std::string> names_, taken_;  // paths; graphs of builders' folders
  std::vector<BuilderUnit> units_;
};

}  // namespace

std::vector<std::string> processor_variants() {
  std::vector<std::string> names;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512vnni")) names.push_back("qint8_avx512_vnni");
  if (__builtin_cpu_supports("avx512f")) names.push_back("qint8_avx512");
  if (__builtin_cpu_supports("avx2")) names.insert(names.end(), {"quint8_avx2", "qint8_avx2"});
#endif
  return names;
}

std::vector<const ListedFile*> graph_with_data(const FolderListing& listing, const std::string& graph) {
  std::vector<const ListedFile*> files;
  for (const ListedFile& f : listing.files)
    if (f.path.starts_with(graph) && (f.path == graph || !f.path.ends_with(".onnx"))) files.push_back(&f);
  return files;
}

Result<FolderChoice> choose_model(const FolderListing& listing, const std::string& variant,
                                  const std::vector<std::string>& wanted) {
  if (!variant.empty() && !wanted.empty())
    return Status::error(Code::kInvalidArgument,
                         listing.name + ":" + variant + ": the name and --variant both say which precision to run");
  Result<FolderChoice> choice = ModelChooser(listing, wanted).run(variant);
  if (!choice.is_ok() && choice.status().code() == Code::kNotFound)  // a part of it, not the whole
    return Status::error(Code::kUnsupportedModel, choice.status().message()).because(choice.status().reasons());
  return choice;
}

}  // namespace situ
