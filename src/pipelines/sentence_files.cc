#include "pipelines/sentence_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/assign.h"
#include "pipelines/graph_files.h"
#include "pipelines/safetensors.h"
#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kMostWidth = int64_t{1} << 20, kMostTextTokens = int64_t{1} << 24, kMostModules = 64;
constexpr int64_t kMostTokenId = INT32_MAX;
constexpr const char* kFilesConfig = "config_sentence_transformers.json";

Status should_be(const fs::path& file, const std::string& field, const std::string& what, const Json& is) {
  return Status::error(Code::kBadFile, file.string() + ": " + field + " should be " + what + ", is " + shown(is));
}

// Of an object; null where it is not there.
const Json& field(const Json& json, const std::string& key) {
  static const Json null;
  const auto it = json.find(key);
  return it == json.end() ? null : *it;
}

Status read_flag(const fs::path& file, const Json& json, const char* key, bool* flag) {
  const Json& value = field(json, key);
  if (value.is_null()) return Status::ok();
  if (!value.is_boolean()) return should_be(file, key, "true or false", value);
  *flag = value.get<bool>();
  return Status::ok();
}

Status read_count(const fs::path& file, const Json& json, const char* key, int64_t most, int64_t* count) {
  const Json& value = field(json, key);
  if (value.is_null()) return Status::ok();
  if (!value.is_number_unsigned() || value.get<uint64_t>() == 0 || value.get<uint64_t>() > static_cast<uint64_t>(most))
    return should_be(file, key, "an integer from 1 to " + std::to_string(most), value);
  *count = value.get<int64_t>();
  return Status::ok();
}

// In the order in which sentence-transformers puts them side by side.
struct ModeName {
  const char *flag, *name;
  PoolingMode mode;
};
constexpr ModeName kModes[] = {
    {"pooling_mode_cls_token", "cls", PoolingMode::kCls},
    {"pooling_mode_max_tokens", "max", PoolingMode::kMax},
    {"pooling_mode_mean_tokens", "mean", PoolingMode::kMean},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", PoolingMode::kMeanSqrtLength},
    {"pooling_mode_weightedmean_tokens", "weightedmean", PoolingMode::kWeightedMean},
    {"pooling_mode_lasttoken", "lasttoken", PoolingMode::kLastToken},
};

// "pooling_mode": a name, or a list of them.
Status read_mode_names(const fs::path& file, const Json& value, Pooling* pooling) {
  const Json names = value.is_array() ? value : Json::array({value});
  std::string known;
  for (const ModeName& m : kModes) known += (known.empty() ? "" : ", ") + std::string(m.name);
  for (const Json& name : names) {
    const auto* mode = std::find_if(std::begin(kModes), std::end(kModes),
                                    [&](const ModeName& m) { return name.is_string() && name == m.name; });
    if (mode == std::end(kModes)) return should_be(file, "pooling_mode", "one of " + known, name);
    pooling->modes.push_back(mode->mode);
  }
  if (pooling->modes.empty()) return should_be(file, "pooling_mode", "one of " + known, value);
  return Status::ok();
}

Result<Pooling> read_pooling(const fs::path& file) {
  const Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  Pooling pooling;
  pooling.file = file.string();
  SITU_RETURN_IF_ERROR(read_count(file, *json, "word_embedding_dimension", kMostWidth, &pooling.width));
  SITU_RETURN_IF_ERROR(read_count(file, *json, "embedding_dimension", kMostWidth, &pooling.width));
  SITU_RETURN_IF_ERROR(read_flag(file, *json, "include_prompt", &pooling.include_prompt));
  if (const Json& names = field(*json, "pooling_mode"); !names.is_null()) {
    SITU_RETURN_IF_ERROR(read_mode_names(file, names, &pooling));
    return pooling;
  }
  for (const ModeName& m : kModes) {
    bool on = false;
    SITU_RETURN_IF_ERROR(read_flag(file, *json, m.flag, &on));
    if (on) pooling.modes.push_back(m.mode);
  }
  if (pooling.modes.empty()) pooling.modes.push_back(PoolingMode::kMean);
  return pooling;
}

Result<Activation> activation_of(const fs::path& file, const std::string& key, const std::string& path) {
  const std::optional<Activation> found = activation_by_path(path);
  if (found) return *found;
  return Status::error(Code::kUnsupportedModel, file.string() + ": " + key + " '" + path + "' is not supported; " +
                                                    activation_names() + " of torch.nn are");
}

// The names of the rows that a module reads and writes.
Status read_row_names(const fs::path& file, const Json& json, SentenceLayer* layer) {
  const Json &from = field(json, "module_input_name"), &to = field(json, "module_output_name");
  for (const auto& [key, name] : {std::pair{"module_input_name", &from}, {"module_output_name", &to}}) {
    if (!name->is_null() && !name->is_string()) return should_be(file, key, "a name", *name);
    if (*name == "token_embeddings")
      return Status::error(Code::kUnsupportedModel, file.string() + ": " + key + " " + shown(*name) +
                                                        " is not supported: layers take the row of a text");
  }
  if (from.is_string()) layer->from = from.get<std::string>();
  layer->to = to.is_string() ? to.get<std::string>() : layer->from;
  return Status::ok();
}

// Weights of a module: the error where they are not there is kNotFound.
Result<fs::path> weights_file(const fs::path& folder) {
  if (const fs::path file = folder / "model.safetensors"; there(file)) return file;
  const bool pickled = there(folder / "pytorch_model.bin");
  return Status::error(pickled ? Code::kUnsupportedModel : Code::kNotFound,
                       folder.string() + ": the module's weights are in model.safetensors, which is missing" +
                           (pickled ? "; pytorch_model.bin, a pickle, is not read" : ""));
}

Status read_dense(const fs::path& folder, SentenceLayer* layer) {
  const fs::path file = folder / "config.json";
  const Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  bool bias = true;
  SITU_RETURN_IF_ERROR(read_count(file, *json, "in_features", kMostWidth, &layer->in));
  SITU_RETURN_IF_ERROR(read_count(file, *json, "out_features", kMostWidth, &layer->out));
  SITU_RETURN_IF_ERROR(read_flag(file, *json, "bias", &bias));
  for (const auto& [key, value] : {std::pair{"in_features", layer->in}, {"out_features", layer->out}})
    if (value == 0) return should_be(file, key, "an integer", field(*json, key));
  SITU_RETURN_IF_ERROR(read_row_names(file, *json, layer));
  SITU_RETURN_IF_ERROR(read_flag(file, *json, "use_residual", &layer->adds_row));
  const Json& path = field(*json, "activation_function");
  if (!path.is_null() && !path.is_string()) return should_be(file, "activation_function", "a class of torch.nn", path);
  const Result<Activation> activation = activation_of(
      file, "activation_function", path.is_null() ? "torch.nn.modules.activation.Tanh" : path.get<std::string>());
  if (!activation.is_ok()) return activation.status();
  layer->activation = *activation;
  const Result<fs::path> weights = weights_file(folder);
  if (!weights.is_ok()) return weights.status();
  SITU_RETURN_IF_ERROR(assign(&layer->weight, read_safetensor(*weights, "linear.weight", {layer->out, layer->in})));
  if (bias) SITU_RETURN_IF_ERROR(assign(&layer->bias, read_safetensor(*weights, "linear.bias", {layer->out})));
  if (layer->adds_row && layer->in != layer->out)
    SITU_RETURN_IF_ERROR(
        assign(&layer->residual, read_safetensor(*weights, "residual.weight", {layer->out, layer->in})));
  return Status::ok();
}

// Of a version without a file: the row of the sentence.
Status read_normalize(const fs::path& folder, SentenceLayer* layer) {
  const fs::path file = folder / "config.json";
  if (!there(file)) return Status::ok();
  const Result<Json> json = read_json_object(file);
  return json.is_ok() ? read_row_names(file, *json, layer) : json.status();
}

Status read_logit_score(const fs::path& folder, std::optional<LogitScore>* score) {
  const fs::path file = folder / "config.json";
  const Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  const Json &from = field(*json, "module_input_name"), &yes = field(*json, "true_token_id"),
             &no = field(*json, "false_token_id");
  if (!from.is_null() && from != "causal_logits") return should_be(file, "module_input_name", "causal_logits", from);
  const auto is_id = [](const Json& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() <= uint64_t{kMostTokenId};
  };
  if (!is_id(yes)) return should_be(file, "true_token_id", "a token id", yes);
  if (!no.is_null() && !is_id(no)) return should_be(file, "false_token_id", "a token id or null", no);
  *score = LogitScore{yes.get<int64_t>(), {}};
  if (!no.is_null()) (*score)->false_id = no.get<int64_t>();
  return Status::ok();
}

Status read_layer_norm(const fs::path& folder, SentenceLayer* layer) {
  const fs::path file = folder / "config.json";
  const Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  SITU_RETURN_IF_ERROR(read_count(file, *json, "dimension", kMostWidth, &layer->in));
  if (layer->in == 0) return should_be(file, "dimension", "an integer", field(*json, "dimension"));
  layer->out = layer->in;
  const Result<fs::path> weights = weights_file(folder);
  if (!weights.is_ok()) return weights.status();
  for (const auto& [name, to] : {std::pair{"norm.weight", &layer->weight}, {"norm.bias", &layer->bias}}) {
    SITU_RETURN_IF_ERROR(assign(to, read_safetensor(*weights, name, {layer->in})));
  }
  return Status::ok();
}

// "message": texts go through the chat template. Others are for pictures and sounds beside texts.
Status read_modalities(const fs::path& file, const Json& config, SentenceFiles* files) {
  if (config.is_null()) return Status::ok();
  if (!config.is_object()) return should_be(file, "modality_config", "an object", config);
  const Json& text = field(config, "text");
  for (const auto& [key, usual] : {std::pair{"method", "forward"}, {"method_output_name", "last_hidden_state"}}) {
    const Json& value = text.is_object() ? field(text, key) : text;
    if (value.is_string() && value != usual && value != "logits") files->text_output = value.get<std::string>();
  }
  const Json& message = field(config, "message");
  if (message.is_null()) return Status::ok();
  if (!message.is_object()) return should_be(file, "modality_config.message", "an object", message);
  const Json& format = field(message, "format");
  if (!format.is_null() && format != "flat" && format != "structured")
    return should_be(file, "modality_config.message.format", "flat or structured", format);
  files->templated.emplace();
  files->templated->lists = format == "structured";
  return Status::ok();
}

// Arguments of the tokenizer and of the chat template. What would change tokens and is not done is refused.
Status read_processing(const fs::path& file, const Json& config, SentenceFiles* files) {
  if (config.is_null()) return Status::ok();
  if (!config.is_object()) return should_be(file, "processing_kwargs", "an object", config);
  const std::string start = "processing_kwargs.";
  for (const char* part : {"common", "text"}) {
    const Json& arguments = field(config, part);
    if (arguments.is_null()) continue;
    if (!arguments.is_object()) return should_be(file, start + part, "an object", arguments);
    for (const auto& [key, value] : arguments.items()) {
      if (key == "max_length") {
        SITU_RETURN_IF_ERROR(read_count(file, arguments, "max_length", kMostTextTokens, &files->max_seq_length));
        continue;
      }
      const bool usual = (key == "truncation" && (value == true || value == "longest_first")) ||
                         (key == "add_special_tokens" && value == true) || key.starts_with("padding") ||
                         key.starts_with("return_") || key == "pad_to_multiple_of" || key == "logits_to_keep";
      if (!usual)
        return Status::error(Code::kUnsupportedModel, file.string() + ": " + start + part + "." + key + " " +
                                                          shown(value) + " is not supported");
    }
  }
  const Json& variables = field(config, "chat_template");
  if (variables.is_null() || !files->templated) return Status::ok();
  if (!variables.is_object()) return should_be(file, start + "chat_template", "an object", variables);
  SITU_RETURN_IF_ERROR(read_flag(file, variables, "add_generation_prompt", &files->templated->generation_prompt));
  SITU_RETURN_IF_ERROR(read_flag(file, variables, "restore_suffix", &files->templated->restores_end));
  Json others = variables;
  others.erase("add_generation_prompt"), others.erase("restore_suffix");
  for (const char* key : {"truncation", "padding", "max_length", "continue_final_message", "tools", "documents"})
    if (others.contains(key))
      return Status::error(Code::kUnsupportedModel, file.string() + ": " + start + "chat_template." + key + " " +
                                                        shown(others[key]) + " is not supported");
  if (!others.empty()) files->templated->variables_json = others.dump();
  return Status::ok();
}

// sentence_bert_config.json, which older versions name after the model.
Status read_transformer(const fs::path& folder, SentenceFiles* files) {
  for (const char* name :
       {"sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json",
        "sentence_camembert_config.json", "sentence_albert_config.json", "sentence_xlm-roberta_config.json",
        "sentence_xlnet_config.json"}) {
    const fs::path file = folder / name;
    if (!there(file)) continue;
    const Result<Json> json = read_json_object(file);
    if (!json.is_ok()) return json.status();
    SITU_RETURN_IF_ERROR(read_count(file, *json, "max_seq_length", kMostTextTokens, &files->max_seq_length));
    SITU_RETURN_IF_ERROR(read_flag(file, *json, "do_lower_case", &files->do_lower_case));
    SITU_RETURN_IF_ERROR(read_modalities(file, field(*json, "modality_config"), files));
    return read_processing(file, field(*json, "processing_kwargs"), files);
  }
  return Status::ok();
}

// A module's folder stays inside the model's.
Status check_path(const fs::path& file, const std::string& where, const std::string& path) {
  const fs::path p(path);
  if (!p.is_absolute() && std::none_of(p.begin(), p.end(), [](const fs::path& part) { return part == ".."; }))
    return Status::ok();
  return Status::error(Code::kBadFile, file.string() + ": " + where + ".path '" + path + "' is no folder of this one");
}

class ModulesReader {
 public:
  ModulesReader(const fs::path& folder, SentenceFiles* files)
      : folder_(folder), file_(folder / "modules.json"), files_(*files) {}

  Status run() {
    const Result<Json> json = read_json_array(file_);
    if (!json.is_ok()) return json.status();
    if (json->empty() || json->size() > static_cast<size_t>(kMostModules))
      return Status::error(Code::kBadFile, file_.string() + ": a list of " + std::to_string(json->size()) +
                                               " modules; from 1 to " + std::to_string(kMostModules) + " are possible");
    files_.has_modules = true;
    for (size_t i = 0; i < json->size(); ++i) SITU_RETURN_IF_ERROR(add(i, (*json)[i]));
    files_.cross_encoder = files_.logit_score || (!files_.layers.empty() && files_.layers.back().to == kScores);
    return Status::ok();
  }

 private:
  Status add(size_t i, const Json& module) {
    const std::string where = "[" + std::to_string(i) + "]";
    if (!module.is_object()) return should_be(file_, where, "an object", module);
    const Json &type = field(module, "type"), &path = field(module, "path");
    if (!type.is_string()) return should_be(file_, where + ".type", "the name of a class", type);
    if (!path.is_string() && !path.is_null()) return should_be(file_, where + ".path", "the name of a folder", path);
    const std::string inside = path.is_null() ? "" : path.get<std::string>();
    SITU_RETURN_IF_ERROR(check_path(file_, where, inside));
    const std::string full = type.get<std::string>(), name = full.substr(full.rfind('.') + 1);
    const bool own = full.rfind("sentence_transformers.", 0) != 0;
    const auto refuse = [&](const std::string& why) {
      return Status::error(Code::kUnsupportedModel, file_.string() + ": " + where + ".type '" + full + "' " + why);
    };
    if (own) return refuse("is code of the folder's own, which is not run");
    if ((i == 0) != (name == "Transformer"))
      return refuse(i == 0 ? "cannot be the first module: that is a Transformer"
                           : "is not supported behind the first module");
    const fs::path at = folder_ / inside;
    if (name == "Transformer") {
      SITU_RETURN_IF_ERROR(read_transformer(at, &files_));
      return inside.empty() || files_.max_seq_length > 0 ? Status::ok() : read_transformer(folder_, &files_);
    }
    if (name == "Dropout") return Status::ok();
    if (name == "Pooling") {
      if (files_.pooling || !files_.layers.empty()) return refuse("stands behind other modules that make a sentence");
      SITU_RETURN_IF_ERROR(assign(&files_.pooling, read_pooling(at / "config.json")));
      return Status::ok();
    }
    if (files_.logit_score) return refuse("stands behind the module that makes the score");
    if (name == "LogitScore") {
      if (i != 1) return refuse("takes a decoder's logits, and stands behind other modules");
      return read_logit_score(at, &files_.logit_score);
    }
    SentenceLayer layer;
    layer.name = at.string();
    if (name == "Normalize") {
      layer.kind = SentenceLayer::Kind::kNormalize;
      SITU_RETURN_IF_ERROR(read_normalize(at, &layer));
    } else if (name == "Dense" || name == "LayerNorm") {
      layer.kind = name == "Dense" ? SentenceLayer::Kind::kDense : SentenceLayer::Kind::kLayerNorm;
      const Status read = name == "Dense" ? read_dense(at, &layer) : read_layer_norm(at, &layer);
      const bool missing = read.code() == Code::kNotFound;
      if (!read.is_ok() && !missing) return read;
      if (missing && files_.missing.is_ok()) files_.missing = read;
    } else {
      return refuse("is not supported; Transformer, Pooling, Normalize, Dense, LayerNorm, Dropout and LogitScore are");
    }
    files_.layers.push_back(std::move(layer));
    return Status::ok();
  }

  const fs::path folder_, file_;
  SentenceFiles& files_;
};

Status read_prompts(const fs::path& file, const Json& json, SentenceFiles* files) {
  const Json &prompts = field(json, "prompts"), &name = field(json, "default_prompt_name");
  if (!prompts.is_null() && !prompts.is_object()) return should_be(file, "prompts", "an object", prompts);
  if (!name.is_null() && !name.is_string()) return should_be(file, "default_prompt_name", "a name or null", name);
  if (prompts.is_object())
    for (const auto& [key, text] : prompts.items()) {
      if (!text.is_string() && !text.is_null()) return should_be(file, "prompts." + key, "a text", text);
      files->prompts[key] = text.is_null() ? "" : text.get<std::string>();
    }
  if (name.is_null() || name == "") return Status::ok();
  const auto found = files->prompts.find(name.get<std::string>());
  if (found == files->prompts.end()) return should_be(file, "default_prompt_name", "one of prompts", name);
  files->default_prompt = found->second;
  return Status::ok();
}

// config_sentence_transformers.json. Where another class than CrossEncoder saved the folder of a graph with labels, no
// file but the graph counts, as there: prompts of embeddings would stand in front of questions.
Status read_files_config(const fs::path& file, bool labels, SentenceFiles* files) {
  const Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  const Json &type = field(*json, "model_type"), &activation = field(*json, "activation_fn");
  if (!type.is_null() && !type.is_string()) return should_be(file, "model_type", "the name of a class", type);
  const bool pairs = labels || files->cross_encoder, by_pairs = type == "CrossEncoder";
  if (pairs && !by_pairs) {
    if (labels) *files = SentenceFiles();
    return Status::ok();
  }
  if (by_pairs && !pairs)
    return Status::error(Code::kUnsupportedModel,
                         file.string() +
                             ": model_type is CrossEncoder, and neither the graph nor the last module of "
                             "modules.json makes scores");
  SITU_RETURN_IF_ERROR(read_prompts(file, *json, files));
  SITU_RETURN_IF_ERROR(read_count(file, *json, "truncate_dim", kMostWidth, &files->truncate_dim));
  if (!activation.is_null() && !activation.is_string())
    return should_be(file, "activation_fn", "the name of a class", activation);
  if (activation.is_string()) files->activation = activation.get<std::string>();
  files->config_file = file.string();
  return Status::ok();
}

}  // namespace

fs::path transformer_folder(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  if (!there(file)) return folder;
  const Result<Json> json = read_json_array(file);
  if (!json.is_ok() || json->empty() || !json->front().is_object()) return folder;
  const Json& path = field(json->front(), "path");
  if (!path.is_string() || path == "" || !check_path(file, "", path.get<std::string>()).is_ok()) return folder;
  const fs::path inside = folder / path.get<std::string>();
  const bool tokenizer = there(inside / "tokenizer.json"), other = there(folder / "tokenizer.json");
  return tokenizer || (there(inside / "config.json") && !other) ? inside : folder;
}

Result<SentenceFiles> read_sentence_files(const fs::path& folder, bool labels) {
  SentenceFiles files;
  if (there(folder / "modules.json"))
    SITU_RETURN_IF_ERROR(ModulesReader(folder, &files).run());
  else
    SITU_RETURN_IF_ERROR(read_transformer(folder, &files));
  if (const fs::path file = folder / kFilesConfig; there(file))
    SITU_RETURN_IF_ERROR(read_files_config(file, labels, &files));
  else if (labels)
    files = SentenceFiles();
  return files;
}

bool scores_by_logits(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  if (!there(file)) return false;
  const Result<Json> json = read_json_array(file);
  if (!json.is_ok() || json->empty() || !json->back().is_object()) return false;
  const Json& type = field(json->back(), "type");
  return type.is_string() && type.get_ref<const std::string&>().starts_with("sentence_transformers.") &&
         type.get_ref<const std::string&>().ends_with(".LogitScore");
}

Result<Activation> score_activation(const SentenceFiles& files, const fs::path& folder, int64_t labels,
                                    std::string* note) {
  // In the order in which sentence-transformers looks at them. Code of others it does not run either: it warns, and
  // goes on.
  const auto is_torch = [&](const std::string& file, const std::string& key, const std::string& path) {
    if (path.starts_with("torch.")) return true;
    *note = file + ": " + key + " '" + path + "' is code of others, which is not run";
    return false;
  };
  if (!files.activation.empty() && is_torch(files.config_file, "activation_fn", files.activation))
    return activation_of(files.config_file, "activation_fn", files.activation);
  const Activation usual = labels == 1 ? Activation::kSigmoid : Activation::kIdentity;
  const fs::path file = folder / "config.json";
  if (!there(file)) return usual;
  const Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  const Json& own = field(*json, "sentence_transformers");
  std::string key = "sentence_transformers.activation_fn";
  Json path = own.is_object() ? field(own, "activation_fn") : Json();
  if (path.is_null()) {
    key = "sbert_ce_default_activation_function";
    path = field(*json, key);
  }
  if (path.is_null()) return usual;
  if (!path.is_string()) return should_be(file, key, "the name of a class", path);
  const std::string name = path.get<std::string>();
  return is_torch(file.string(), key, name) ? activation_of(file, key, name) : usual;
}

Result<SmallerSizes> smaller_sizes(const fs::path& folder) {
  SmallerSizes smaller;
  const fs::path file = folder / "config.json";
  if (!there(file)) return smaller;
  const Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  const Json& sizes = field(*json, "matryoshka_dimensions");
  SITU_RETURN_IF_ERROR(read_flag(file, *json, "is_matryoshka", &smaller.any));
  if (sizes.is_null()) return smaller;
  const auto is_size = [](const Json& n) {
    return n.is_number_unsigned() && n.get<uint64_t>() > 0 && n.get<uint64_t>() <= uint64_t{kMostWidth};
  };
  if (!sizes.is_array() || !std::all_of(sizes.begin(), sizes.end(), is_size))
    return should_be(file, "matryoshka_dimensions", "a list of sizes", sizes);
  smaller.any = smaller.any && sizes.empty();
  smaller.sizes = sizes.get<std::vector<int64_t>>();
  return smaller;
}

}  // namespace situ
