#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "text/json_file.h"

namespace situ {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The longest templates in use have 30 KB.
constexpr uintmax_t kMaxFileBytes = uintmax_t{1} << 20;

// Empty when there is no such file.
Result<std::optional<std::string>> read_text(const fs::path& path) {
  std::error_code failure;
  if (!fs::is_regular_file(path, failure)) return std::optional<std::string>();
  const uintmax_t size = fs::file_size(path, failure);
  if (failure) return Status::error(path.string() + ": " + failure.message());
  if (size > kMaxFileBytes) {
    return Status::error(path.string() + ": " + std::to_string(size) + " bytes, the limit is " +
                         std::to_string(kMaxFileBytes));
  }
  std::ostringstream text;
  std::ifstream file(path, std::ios::binary);
  if (size > 0 && !(text << file.rdbuf())) return Status::error(path.string() + ": cannot be read");
  return std::optional<std::string>(std::move(text).str());
}

// An empty object when there is no such file.
Result<json> read_object(const fs::path& path) {
  std::error_code failure;
  if (!fs::is_regular_file(path, failure)) return json::object();
  return read_json_object(path);
}

// A special token is a text, or an object whose "content" is the text.
void add_special_tokens(const json& config, std::map<std::string, std::string>& out) {
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token")) continue;
    const json* text = &value;
    if (value.is_object() && value.contains("content")) text = &value["content"];
    if (text->is_string()) out.emplace(name, text->get<std::string>());
  }
}

// A token is a text, or an object whose "content" is the text.
const json* token_text(const json& value) {
  const json* text = value.is_object() && value.contains("content") ? &value["content"] : &value;
  return text->is_string() ? text : nullptr;
}

void add_additional_tokens(const json& config, std::vector<std::string>& out) {
  if (!out.empty() || !config.contains("additional_special_tokens")) return;
  const json& list = config["additional_special_tokens"];
  if (!list.is_array()) return;
  for (const json& value : list)
    if (const json* text = token_text(value)) out.push_back(text->get<std::string>());
}

// {"5": {"content": "x", "special": true, ...}}; ids that are none are left out.
void add_added_tokens(const json& config, std::map<int64_t, TokenizerConfig::AddedToken>& out) {
  if (!config.contains("added_tokens_decoder") || !config["added_tokens_decoder"].is_object()) return;
  for (const auto& [key, value] : config["added_tokens_decoder"].items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const json* text = value.is_object() ? token_text(value) : nullptr;
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || !text) continue;
    const auto flag = [&](const char* name) { return value.contains(name) && value[name] == true; };
    out[id] = {text->get<std::string>(), flag("special"),    flag("lstrip"),
               flag("rstrip"),           flag("normalized"), flag("single_word")};
  }
}

std::string text_of(const json& config, const char* name) {
  return config.contains(name) && config[name].is_string() ? config[name].get<std::string>() : std::string();
}

// As transformers finds it, as far as languages or the reading of a text depend on it, or what vocab.json and
// merges.txt mean.
std::string class_of(const json& tokenizer_config, const json& model_config) {
  std::string name = text_of(tokenizer_config, "tokenizer_class");
  if (name.empty()) name = text_of(model_config, "tokenizer_class");
  const std::string type = text_of(model_config, "model_type");
  if (name.empty() && type == "mbart") name = "MBartTokenizer";
  if (name.empty() && type == "m2m_100") name = "M2M100Tokenizer";
  if (name.empty() && (type.starts_with("qwen2") || type.starts_with("qwen3"))) name = "Qwen2Tokenizer";
  for (const char* bert : {"align", "bert", "blip", "bros", "chinese_clip", "ernie", "git", "grounding-dino",
                           "megatron-bert", "mm-grounding-dino", "nezha", "qdqbert", "tvp", "vilt", "visual_bert"})
    if (name.empty() && type == bert) name = "BertTokenizer";
  for (const auto& [of_type, class_name] : {std::pair{"bart", "BartTokenizer"},
                                            {"blenderbot", "BlenderbotTokenizer"},
                                            {"clip", "CLIPTokenizer"},
                                            {"convbert", "ConvBertTokenizer"},
                                            {"distilbert", "DistilBertTokenizer"},
                                            {"dpr", "DPRQuestionEncoderTokenizer"},
                                            {"electra", "ElectraTokenizer"},
                                            {"funnel", "FunnelTokenizer"},
                                            {"layoutlm", "LayoutLMTokenizer"},
                                            {"layoutlmv2", "LayoutLMv2Tokenizer"},
                                            {"led", "LEDTokenizer"},
                                            {"longformer", "LongformerTokenizer"},
                                            {"lxmert", "LxmertTokenizer"},
                                            {"mobilebert", "MobileBertTokenizer"},
                                            {"mpnet", "MPNetTokenizer"},
                                            {"mvp", "MvpTokenizer"},
                                            {"roberta", "RobertaTokenizer"},
                                            {"roformer", "RoFormerTokenizer"},
                                            {"splinter", "SplinterTokenizer"},
                                            {"squeezebert", "SqueezeBertTokenizer"},
                                            {"whisper", "WhisperTokenizer"}})
    if (name.empty() && type == of_type) name = class_name;
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

// transformers writes 10^30 where nothing bounds a text.
int64_t max_length_of(const json& config) {
  constexpr double kNoBound = 1e9;
  const auto it = config.find("model_max_length");
  if (it == config.end() || !it->is_number() || !(it->get<double>() >= 1) || it->get<double>() > kNoBound) return 0;
  return static_cast<int64_t>(it->get<double>());
}

bool names_token_type_ids(const json& config) {
  const auto it = config.find("model_input_names");
  return it == config.end() || !it->is_array() || std::find(it->begin(), it->end(), "token_type_ids") != it->end();
}

// The classes whose post-processor transformers builds from the configuration. Others keep the one of tokenizer.json:
// Whisper's configuration, say, has add_bos_token: false although its tokenizer.json adds <|startoftranscript|>.
bool ends_follow_config(const json& config) {
  static const std::set<std::string> kClasses = {"LlamaTokenizer",  "CodeLlamaTokenizer",  "GemmaTokenizer",
                                                 "CohereTokenizer", "PreTrainedTokenizer", "TokenizersBackend",
                                                 "GPT2Tokenizer",   "GPTNeoXTokenizer"};
  if (!config.contains("tokenizer_class") || !config["tokenizer_class"].is_string()) return false;
  std::string name = config["tokenizer_class"].get<std::string>();
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return kClasses.contains(name);
}

std::optional<TokenizerConfig::Ends> ends_of(const json& config) {
  const auto flag = [&](const char* name) { return config.contains(name) && config[name] == true; };
  if (!config.contains("add_bos_token") && !config.contains("add_eos_token")) return std::nullopt;
  if (!ends_follow_config(config)) return std::nullopt;
  return TokenizerConfig::Ends{flag("add_bos_token"), flag("add_eos_token")};
}

// chat_template is a text, or a list of {"name", "template"}.
void add_templates(const json& config, const fs::path& file, TokenizerConfig::ChatTemplates& out) {
  if (!config.contains("chat_template")) return;
  const json& value = config["chat_template"];
  if (value.is_string()) out.emplace("default", TokenizerConfig::ChatTemplate{value.get<std::string>(), file.string()});
  if (!value.is_array()) return;
  for (const json& entry : value) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) continue;
    if (!entry["name"].is_string() || !entry["template"].is_string()) continue;
    out.emplace(entry["name"].get<std::string>(),
                TokenizerConfig::ChatTemplate{entry["template"].get<std::string>(), file.string()});
  }
}

Status add_template_file(const std::string& name, const fs::path& path, TokenizerConfig::ChatTemplates& out) {
  Result<std::optional<std::string>> text = read_text(path);
  if (!text.is_ok()) return text.status();
  if (text.value()) out.emplace(name, TokenizerConfig::ChatTemplate{*std::move(text).value(), path.string()});
  return Status::ok();
}

Status add_template_files(const fs::path& folder, TokenizerConfig::ChatTemplates& out) {
  SITU_RETURN_IF_ERROR(add_template_file("default", folder / "chat_template.jinja", out));
  std::error_code failure;  // most models have no such folder
  for (fs::directory_iterator it(folder / "additional_chat_templates", failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it->path().extension() != ".jinja") continue;
    SITU_RETURN_IF_ERROR(add_template_file(it->path().stem().string(), it->path(), out));
  }
  return Status::ok();
}

}  // namespace

Result<TokenizerConfig> TokenizerConfig::load(const std::filesystem::path& folder) {
  TokenizerConfig config;
  SITU_RETURN_IF_ERROR(add_template_files(folder, config.chat_templates));
  const fs::path main_file = folder / "tokenizer_config.json", processor_file = folder / "chat_template.json";
  Result<json> main = read_object(main_file);
  if (!main.is_ok()) return main.status();
  add_special_tokens(main.value(), config.special_tokens);
  add_templates(main.value(), main_file, config.chat_templates);
  config.ends = ends_of(main.value());
  add_additional_tokens(main.value(), config.additional_special_tokens);
  add_added_tokens(main.value(), config.added_tokens);
  config.source_language = text_of(main.value(), "src_lang");
  const auto flag = [&](const char* name) { return main.value().contains(name) && main.value()[name] == true; };
  config.legacy_behaviour = flag("legacy_behaviour");
  config.separate_vocabs = flag("separate_vocabs");
  if (main.value().contains("add_prefix_space") && main.value()["add_prefix_space"].is_boolean())
    config.add_prefix_space = flag("add_prefix_space");
  config.cuts_left = text_of(main.value(), "truncation_side") == "left";
  config.model_max_length = max_length_of(main.value());
  config.has_token_types = names_token_type_ids(main.value());
  config.tokenizer_class = class_of(main.value(), json::object());
  if (config.tokenizer_class.empty()) {
    Result<json> model = read_object(folder / "config.json");
    if (model.is_ok()) config.tokenizer_class = class_of(main.value(), model.value());
  }
  Result<json> map = read_object(folder / "special_tokens_map.json");
  if (!map.is_ok()) return map.status();
  add_special_tokens(map.value(), config.special_tokens);
  add_additional_tokens(map.value(), config.additional_special_tokens);
  if (config.chat_templates.empty()) {
    Result<json> processor = read_object(processor_file);
    if (!processor.is_ok()) return processor.status();
    add_templates(processor.value(), processor_file, config.chat_templates);
  }
  return config;
}

}  // namespace situ
