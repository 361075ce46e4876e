#include "pipelines/sentence_files.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/assign.h"
#include "pipelines/graph_files.h"
#include "pipelines/safetensors.h"
#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kMostWidth = int64_t{1} << 20, kMostModules = 64;
// Source: torch.nn.LayerNorm and torch.nn.functional.normalize.
constexpr double kLayerNormEpsilon = 1e-5, kLeastNorm = 1e-12;

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
  bool mean_is_said = false;
  for (const ModeName& m : kModes) {
    bool on = false;
    SITU_RETURN_IF_ERROR(read_flag(file, *json, m.flag, &on));
    if (on) pooling.modes.push_back(m.mode);
    mean_is_said = mean_is_said || (m.mode == PoolingMode::kMean && !field(*json, m.flag).is_null());
  }
  // What the class takes where the file says nothing of it.
  if (!mean_is_said &&
      std::find(pooling.modes.begin(), pooling.modes.end(), PoolingMode::kMean) == pooling.modes.end()) {
    const auto behind =
        std::find_if(pooling.modes.begin(), pooling.modes.end(), [](PoolingMode m) { return m > PoolingMode::kMean; });
    pooling.modes.insert(behind, PoolingMode::kMean);
  }
  if (pooling.modes.empty())
    return Status::error(Code::kBadFile, file.string() + ": none of the pooling modes is true");
  return pooling;
}

Result<Activation> activation_of(const fs::path& file, const std::string& key, const std::string& path) {
  const std::string name = path.substr(path.rfind('.') + 1);
  for (const auto& [known, activation] : {std::pair{"Identity", Activation::kIdentity},
                                          {"Tanh", Activation::kTanh},
                                          {"Sigmoid", Activation::kSigmoid},
                                          {"ReLU", Activation::kRelu},
                                          {"GELU", Activation::kGelu},
                                          {"Softmax", Activation::kSoftmax}})
    if (name == known && path.starts_with("torch.nn.")) return activation;
  return Status::error(Code::kUnsupportedModel,
                       file.string() + ": " + key + " '" + path +
                           "' is not supported; Identity, Tanh, Sigmoid, ReLU, GELU and Softmax of torch.nn are");
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
  for (const char* key : {"module_input_name", "module_output_name"})
    if (const Json& name = field(*json, key); !name.is_null() && name != "sentence_embedding")
      return Status::error(Code::kUnsupportedModel, file.string() + ": " + key + " " + shown(name) +
                                                        " is not supported: a layer takes the sentence");
  const Json& path = field(*json, "activation_function");
  if (!path.is_null() && !path.is_string()) return should_be(file, "activation_function", "a class of torch.nn", path);
  const Result<Activation> activation = activation_of(
      file, "activation_function", path.is_null() ? "torch.nn.modules.activation.Tanh" : path.get<std::string>());
  if (!activation.is_ok()) return activation.status();
  layer->activation = *activation;
  const Result<fs::path> weights = weights_file(folder);
  if (!weights.is_ok()) return weights.status();
  SITU_RETURN_IF_ERROR(assign(&layer->weight, read_safetensor(*weights, "linear.weight", {layer->out, layer->in})));
  if (!bias) return Status::ok();
  SITU_RETURN_IF_ERROR(assign(&layer->bias, read_safetensor(*weights, "linear.bias", {layer->out})));
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
    SITU_RETURN_IF_ERROR(read_count(file, *json, "max_seq_length", int64_t{1} << 24, &files->max_seq_length));
    return read_flag(file, *json, "do_lower_case", &files->do_lower_case);
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
    SentenceLayer layer;
    layer.name = at.string();
    if (name == "Normalize") {
      layer.kind = SentenceLayer::Kind::kNormalize;
    } else if (name == "Dense" || name == "LayerNorm") {
      layer.kind = name == "Dense" ? SentenceLayer::Kind::kDense : SentenceLayer::Kind::kLayerNorm;
      const Status read = name == "Dense" ? read_dense(at, &layer) : read_layer_norm(at, &layer);
      const bool missing = read.code() == Code::kNotFound;
      if (!read.is_ok() && !missing) return read;
      if (missing && files_.missing.is_ok()) files_.missing = read;
    } else {
      return refuse("is not supported; Transformer, Pooling, Normalize, Dense, LayerNorm and Dropout are");
    }
    files_.layers.push_back(std::move(layer));
    return Status::ok();
  }

  const fs::path folder_, file_;
  SentenceFiles& files_;
};

Status read_prompts(const fs::path& file, SentenceFiles* files) {
  const Result<Json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  const Json &prompts = field(*json, "prompts"), &name = field(*json, "default_prompt_name");
  if (!prompts.is_null() && !prompts.is_object()) return should_be(file, "prompts", "an object", prompts);
  if (!name.is_null() && !name.is_string()) return should_be(file, "default_prompt_name", "a name or null", name);
  if (prompts.is_object())
    for (const auto& [key, text] : prompts.items()) {
      if (!text.is_string()) return should_be(file, "prompts." + key, "a text", text);
      files->prompts[key] = text.get<std::string>();
    }
  if (name.is_null() || name == "") return Status::ok();
  const auto found = files->prompts.find(name.get<std::string>());
  if (found == files->prompts.end()) return should_be(file, "default_prompt_name", "one of prompts", name);
  files->default_prompt = found->second;
  return Status::ok();
}

}  // namespace

std::vector<float> Pooling::pool(std::span<const float> rows, int64_t width, int64_t skipped) const {
  const size_t w = static_cast<size_t>(width), tokens = rows.size() / w,
               first = std::min(tokens, static_cast<size_t>(include_prompt ? 0 : skipped));
  std::vector<float> all;
  const auto row = [&](size_t t) { return rows.subspan(t * w, w); };
  const auto weighted = [&](auto weight, double divisor) {
    std::vector<double> sum(w, 0.0);
    for (size_t t = first; t < tokens; ++t)
      for (size_t i = 0; i < w; ++i) sum[i] += weight(t) * static_cast<double>(row(t)[i]);
    for (const double s : sum) all.push_back(static_cast<float>(s / divisor));
  };
  const auto one = [](size_t) { return 1.0; };
  const double count = std::max(1e-9, static_cast<double>(tokens - first));
  for (const PoolingMode mode : modes) switch (mode) {
      case PoolingMode::kCls:  // the first token, of the prompt or not
        all.insert(all.end(), row(0).begin(), row(0).end());
        break;
      case PoolingMode::kMax:
        for (size_t i = 0; i < w; ++i) {
          float most = -1e9f;
          for (size_t t = first; t < tokens; ++t) most = std::max(most, row(t)[i]);
          all.push_back(most);
        }
        break;
      case PoolingMode::kMean:
        weighted(one, count);
        break;
      case PoolingMode::kMeanSqrtLength:
        weighted(one, std::sqrt(count));
        break;
      case PoolingMode::kWeightedMean: {
        double weights = 0;
        for (size_t t = first; t < tokens; ++t) weights += static_cast<double>(t + 1);
        weighted([](size_t t) { return static_cast<double>(t + 1); }, std::max(1e-9, weights));
        break;
      }
      case PoolingMode::kLastToken:
        if (first < tokens)
          all.insert(all.end(), row(tokens - 1).begin(), row(tokens - 1).end());
        else
          all.resize(all.size() + w, 0.0f);
        break;
    }
  return all;
}

void apply_activation(Activation activation, std::span<float> row) {
  const auto each = [&](auto f) {
    for (float& x : row) x = static_cast<float>(f(static_cast<double>(x)));
  };
  switch (activation) {
    case Activation::kIdentity:
      break;
    case Activation::kTanh:
      each([](double x) { return std::tanh(x); });
      break;
    case Activation::kSigmoid:
      each([](double x) { return 1 / (1 + std::exp(-x)); });
      break;
    case Activation::kRelu:
      each([](double x) { return std::max(0.0, x); });
      break;
    case Activation::kGelu:
      each([](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); });
      break;
    case Activation::kSoftmax: {
      const double most = row.empty() ? 0 : static_cast<double>(*std::max_element(row.begin(), row.end()));
      double sum = 0;
      for (const float x : row) sum += std::exp(static_cast<double>(x) - most);
      each([&](double x) { return std::exp(x - most) / sum; });
    }
  }
}

Status SentenceLayer::apply(std::vector<float>* row) const {
  std::vector<float>& x = *row;
  if (kind != Kind::kNormalize && std::ssize(x) != in)
    return Status::error(Code::kBadFile,
                         name + ": takes " + std::to_string(in) + " numbers, and is given " + std::to_string(x.size()));
  if (kind == Kind::kNormalize) {
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * static_cast<double>(v);
    const double norm = std::max(kLeastNorm, std::sqrt(squares));
    for (float& v : x) v = static_cast<float>(static_cast<double>(v) / norm);
  } else if (kind == Kind::kDense) {
    std::vector<float> made;
    for (size_t o = 0; o < static_cast<size_t>(out); ++o) {
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias[o]);
      const float* w = weight.data() + o * x.size();
      for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(w[i]) * static_cast<double>(x[i]);
      made.push_back(static_cast<float>(sum));
    }
    apply_activation(activation, made);
    x = std::move(made);
  } else {
    double mean = 0, variance = 0;
    for (const float v : x) mean += static_cast<double>(v) / static_cast<double>(in);
    for (const float v : x) variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
    const double scale = 1 / std::sqrt(variance / static_cast<double>(in) + kLayerNormEpsilon);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>((static_cast<double>(x[i]) - mean) * scale * static_cast<double>(weight[i]) +
                                static_cast<double>(bias[i]));
  }
  return Status::ok();
}

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

Result<SentenceFiles> read_sentence_files(const fs::path& folder) {
  SentenceFiles files;
  if (there(folder / "modules.json"))
    SITU_RETURN_IF_ERROR(ModulesReader(folder, &files).run());
  else
    SITU_RETURN_IF_ERROR(read_transformer(folder, &files));
  if (const fs::path file = folder / "config_sentence_transformers.json"; there(file))
    SITU_RETURN_IF_ERROR(read_prompts(file, &files));
  return files;
}

Result<Activation> score_activation(const fs::path& folder, int64_t labels) {
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
  // Code of others is not run by sentence-transformers either, which then takes the usual function.
  return path.get<std::string>().rfind("torch.", 0) == 0 ? activation_of(file, key, path.get<std::string>()) : usual;
}

std::string strip_text(const std::string& text) {
  // str.isspace of Python, in UTF-8.
  static const std::set<std::string> wide = [] {
    std::set<std::string> all{"\u0085", "\u00A0", "\u1680", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};
    for (char c = '\x80'; c <= '\x8A'; ++c) all.insert(std::string("\xE2\x80") + c);  // U+2000 to U+200A
    return all;
  }();
  const auto narrow = [](char c) { return (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= ' '); };
  const auto space_at = [&](size_t at, size_t bytes) {
    return bytes == 1 ? narrow(text[at]) : wide.count(text.substr(at, bytes)) != 0;
  };
  size_t begin = 0, end = text.size();
  for (bool more = true; more;) {
    more = false;
    for (size_t bytes = 1; bytes <= 3 && !more && begin + bytes <= end; ++bytes)
      if (space_at(begin, bytes)) begin += bytes, more = true;
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t bytes = 1; bytes <= 3 && !more && begin + bytes <= end; ++bytes)
      if (space_at(end - bytes, bytes)) end -= bytes, more = true;
  }
  return text.substr(begin, end - begin);
}

}  // namespace situ
