// `situ check`: whether a model runs, as what, and if not why.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/reasons.h"
#include "passes/module/check_scales.h"
#include "passes/module/named_operator.h"
#include "pipelines/declared.h"
#include "pipelines/graph_files.h"
#include "pipelines/inspect_module.h"
#include "pipelines/inspect_program.h"
#include "pipelines/verify.h"
#include "situ/tools.h"
#include "text/json_file.h"

namespace situ {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson or_null(const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); }
OrderedJson or_null(int64_t number) { return number == 0 ? OrderedJson() : OrderedJson(number); }

OrderedJson reasons_json(const Reasons& reasons) {
  OrderedJson list = OrderedJson::array();
  for (const Reason& r : reasons)
    list.push_back({{"kind", kind_name(r.kind)},
                    {"operator", or_null(r.op)},
                    {"domain", or_null(r.domain)},
                    {"opset", or_null(r.opset)},
                    {"count", or_null(r.count)},
                    {"first_node", or_null(r.first_node)},
                    {"detail", r.detail}});
  return list;
}

// Of an error that says nothing of what it is about.
Reason::Kind kind_of(Code code) {
  switch (code) {
    case Code::kNoRoom:
    case Code::kContextExceeded:
      return Reason::Kind::kSize;
    case Code::kNotFound:
    case Code::kBadFile:
      return Reason::Kind::kFile;
    default:
      return Reason::Kind::kShape;
  }
}

std::string what_it_is(const Model::Impl& m) {
  if (!m.generates()) return m.embedder->scores_pairs() ? "cross-encoder" : "embeddings";
  if (m.has_encoder()) return m.encoder_takes_ids() ? "encoder-decoder of texts" : "encoder-decoder of arrays";
  if (m.files.media.empty()) return "decoder";
  const auto& media = m.files.media;
  const bool sounds = std::any_of(media.begin(), media.end(), [](const MediaEncoder& e) { return e.sound; });
  const bool pictures = std::any_of(media.begin(), media.end(), [](const MediaEncoder& e) { return !e.sound; });
  return std::string("decoder with encoders of ") + (pictures && sounds ? "pictures and sounds"
                                                     : pictures         ? "pictures"
                                                                        : "sounds");
}

// Encoders of pictures and sounds are compiled when the first one comes: what their operators say is known before.
Status check_media(Model::Impl& m) {
  ReasonList refused;
  for (MediaEncoder& encoder : m.files.media)
    refused.add(resolve_ops(encoder.model.graph, NodesOf::kFile).with_context(encoder.name), Reason::Kind::kOperator);
  if (refused.empty() && m.in_place && !m.in_place->media_problem().empty())
    refused.add(Status::error("no pictures or sounds: " + m.in_place->media_problem()), Reason::Kind::kInput);
  return refused.status();
}

// Of weights: loading looks at few of them, because what is packed and saved is not read again.
Status check_scales_of(const Model::Impl& m) {
  ReasonList refused;
  const auto check = [&](const Graph& graph, const std::string& name) {
    refused.add(check_scales(graph).with_context(name), Reason::Kind::kAttribute);
  };
  check(m.files.decoder.graph, m.files.decoder_name);
  if (m.files.encoder) check(m.files.encoder->graph, m.files.encoder_name);
  if (m.files.first) check(m.files.first->graph, m.files.first_name);
  for (const MediaEncoder& media : m.files.media) check(media.model.graph, media.name);
  return refused.status();
}

// The last token of the context: what is copied for each of the past ones is most there.
int64_t copied_per_token(const InPlaceEngine& e) {
  SymbolValues step;
  step[kSymS] = step[kSymL] = 1;
  step[kSymP] = step[kSymW] = std::max<int64_t>(0, e.context() - 1);
  step[kSymT] = step[kSymP] + 1;
  step[kSymE] = e.encoder() ? e.encoder()->counted_rows() : 1;
  return copied_bytes(e.decode_graph(), e.decode_plan(), step);
}

void add_facts(const Model::Impl& m, OrderedJson* j) {
  if (m.in_place) {
    const InPlaceEngine& e = *m.in_place;
    (*j)["programs"] = module_json(m)["programs"];
    (*j)["states"] = states_json(e);
    (*j)["recognised"] = found_json(e.compiled());
    (*j)["bytes_copied_per_token_planned"] = copied_per_token(e);
    if (e.encoder() && !e.encoder()->program())
      (*j)["notes"].push_back("the encoder is compiled when its arrays come: more may be refused then");
  } else {
    const TextEncoder& e = m.embedder->encoder();
    SymbolValues step;
    step[kSymS] = step[kSymL] = step[kSymT] = 1;
    (*j)["programs"] = OrderedJson::array({program_json({"texts", &e.compiled(), &e.plan(), e.kernel_calls()})});
    (*j)["recognised"] = found_json(e.compiled());
    (*j)["bytes_copied_per_token_planned"] = copied_bytes(e.compiled().graph, e.plan(), step);
  }
}

// -- what it is, in numbers

// "int4", "float16" ...: the form that most bytes of the weights have.
std::string precision_of(const Graph& graph) {
  std::vector<std::string> form(graph.values.size());
  for (const Node& node : graph.nodes) {
    const bool bnb = node.is("MatMulBnb4", "com.microsoft"), nbits = node.is("MatMulNBits", "com.microsoft"),
               experts = node.is("QMoE", "com.microsoft");
    if (!bnb && !nbits && !experts) continue;
    const int64_t bits = node.attr_int(experts ? "expert_weight_bits" : "bits", 4);
    for (const ValueId v : node.in)
      if (v != kNoValue && graph.value(v).constant.present() && graph.value(v).constant.type() == DType::kU8)
        form[v] = bnb ? "4-bit floats" : "int" + std::to_string(bits);
  }
  std::map<std::string, int64_t> bytes;
  for (size_t v = 0; v < graph.values.size(); ++v)
    if (const Tensor& constant = graph.values[v].constant; constant.present())
      bytes[form[v].empty() ? dtype_name(constant.type()) : form[v]] += constant.bytes();
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "no weights" : most->first;
}

// model_type of config.json, or that of genai_config.json; null: neither says it.
OrderedJson architecture_of(const std::filesystem::path& folder) {
  if (const auto config = read_json_object(folder / "config.json"); config.is_ok())
    if (const auto type = config->find("model_type"); type != config->end() && type->is_string()) return *type;
  if (const auto config = read_json_object(folder / "genai_config.json"); config.is_ok())
    if (const auto model = config->find("model"); model != config->end() && model->is_object())
      if (const auto type = model->find("type"); type != model->end() && type->is_string()) return *type;
  return nullptr;
}

// The page of facts.
void add_page(const Model& model, OrderedJson* j) {
  const Model::Impl& m = impl_of(model);
  const ModelFacts f = model.facts();
  (*j)["architecture"] = architecture_of(m.folder.folder);
  (*j)["precision"] = precision_of(m.files.decoder.graph);
  (*j)["weight_bytes"] = f.weight_bytes;
  (*j)["context_length"] = f.context_length;
  (*j)["state_bytes_per_token"] = f.state_bytes_per_token;
  (*j)["memory_at_full_context"] = OrderedJson();
  if (m.in_place)
    (*j)["memory_at_full_context"] =
        f.weight_bytes + f.computed_bytes + f.arena_bytes + f.state_bytes_per_token * f.context_length;
  (*j)["tokenizer"] = m.text() != nullptr;
  (*j)["chat_template"] = m.text() && m.text()->has_chat_template();
  (*j)["speech"] = m.is_for_speech();
}

// -- what to try

bool about_operators(const Reasons& reasons) {
  return std::any_of(reasons.begin(), reasons.end(), [](const Reason& r) {
    return r.kind == Reason::Kind::kOperator || r.kind == Reason::Kind::kAttribute || r.kind == Reason::Kind::kOpset;
  });
}

// Other precisions of the folder's one graph whose operators are all known.
std::vector<std::string> known_variants(const ModelFolder& folder, const std::vector<std::string>& wanted) {
  std::vector<std::string> known;
  if (!folder.encoder_file.empty() || !folder.media_files.empty() || !folder.first_file.empty()) return known;
  const Result<VariantChoice> choice = VariantChoice::parse(wanted);
  if (!choice.is_ok()) return known;
  const GraphFiles files(folder.graphs, *choice);
  for (const std::string& variant : files.others(folder.model_file)) {
    const auto of_graph = files.all().find(graph_of(folder.model_file));
    if (of_graph == files.all().end() || !of_graph->second.count(variant)) continue;
    Result<ImportedModel> imported = import_onnx(of_graph->second.at(variant).front(), nullptr, is_operator);
    if (imported.is_ok() && resolve_ops(imported->graph, NodesOf::kFile).is_ok()) known.push_back(variant);
  }
  return known;
}

// A shorter context that fits.
std::string shorter_context(const std::string& path, const LoadOptions& options) {
  constexpr int64_t kLeast = 32;
  LoadOptions shorter = options;
  int64_t context = options.context_length;
  if (context == 0)
    if (const Result<ModelFolder> folder = open_model_folder(path, options.variants); folder.is_ok())
      context = folder->context_length > 0 ? folder->context_length : kDefaultContext;
  while ((context /= 4) >= kLeast) {
    shorter.context_length = context;
    if (load_model(path, shorter, {.dry = true}).is_ok()) return "--context " + std::to_string(context);
  }
  return "";
}

// The line that makes a model of a checkpoint: of a folder of PyTorch's weights, or of what a GGUF file was made from.
std::string export_line(const std::filesystem::path& path) {
  const std::string of_gguf =
      "optimum-cli export onnx --model ORG/REPO OUTPUT, of the checkpoint that the GGUF file was made from";
  if (path.extension() == ".gguf") return of_gguf;
  std::error_code error;
  for (std::filesystem::directory_iterator file(path, error), end; !error && file != end; file.increment(error)) {
    const std::string ending = file->path().extension().string();
    if (ending == ".gguf") return of_gguf;
    if (ending != ".safetensors" && ending != ".bin" && ending != ".pt") continue;
    return "optimum-cli export onnx --model " + path.string() + " OUTPUT";
  }
  return "";
}

OrderedJson what_to_try(const std::string& path, const LoadOptions& options, const Reasons& reasons) {
  OrderedJson list = OrderedJson::array();
  const auto add = [&](const std::string& text) {
    if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  };
  std::error_code error;
  if (about_operators(reasons) && std::filesystem::is_directory(path, error))
    if (const Result<ModelFolder> folder = open_model_folder(path, options.variants); folder.is_ok())
      for (const std::string& variant : known_variants(*folder, options.variants)) add("--variant " + variant);
  for (const Reason& r : reasons) add(r.advice);
  if (std::any_of(reasons.begin(), reasons.end(), [](const Reason& r) { return r.kind == Reason::Kind::kFile; }))
    add(export_line(path));
  if (std::any_of(reasons.begin(), reasons.end(), [](const Reason& r) { return r.kind == Reason::Kind::kSize; }))
    add(shorter_context(path, options));
  return list;
}

}  // namespace

Check check(const std::string& path, const LoadOptions& options, int64_t verify) {
  Result<Model> model = load_model(path, options, {.dry = true});
  Status refused = model.status();
  if (model.is_ok()) refused = check_media(impl_of(*model));
  if (refused.is_ok()) refused = check_scales_of(impl_of(*model));
  if (refused.reasons().empty())
    refused = refused.because({{.kind = kind_of(refused.code()), .op = "", .detail = refused.message()}});
  Check result{.runs = refused.is_ok(), .json = ""};
  OrderedJson j{{"runs", result.runs},
                {"as", OrderedJson()},
                {"architecture", OrderedJson()},
                {"precision", OrderedJson()},
                {"weight_bytes", OrderedJson()},
                {"context_length", OrderedJson()},
                {"state_bytes_per_token", OrderedJson()},
                {"memory_at_full_context", OrderedJson()},
                {"tokenizer", false},
                {"chat_template", false},
                {"speech", false},
                {"reasons", reasons_json(refused.reasons())},
                {"programs", OrderedJson::array()},
                {"states", OrderedJson::array()},
                {"recognised", OrderedJson::array()},
                {"bytes_copied_per_token_planned", OrderedJson()},
                {"try", OrderedJson::array()},
                {"notes", OrderedJson::array()}};
  if (model.is_ok()) {
    const Model::Impl& m = impl_of(*model);
    j["as"] = what_it_is(m);
    j["notes"] = m.folder.notes;
    add_page(*model, &j);
    add_facts(m, &j);
    for (const std::string& note : disagreements(m)) j["notes"].push_back(note);
  } else {
    j["message"] = refused.message();
  }
  if (!result.runs) j["try"] = what_to_try(path, options, refused.reasons());
  if (result.runs && verify > 0) {
    model = Status::error("done");  // its memory
    const Verification v = verify_model(path, options, verify);
    result.verified = v.agrees();
    j["verify"] = {{"prompts", v.prompts},
                   {"tokens", v.tokens},
                   {"largest_difference", v.largest_difference},
                   {"largest_logit", v.largest_logit},
                   {"ids_equal", v.ids_equal}};
    if (!v.lengths.empty()) j["verify"]["lengths"] = v.lengths;
    if (!v.status.is_ok()) j["verify"]["error"] = v.status.message();
  }
  result.json = json_text(j);
  return result;
}

}  // namespace situ
