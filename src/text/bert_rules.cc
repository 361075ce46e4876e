#include "text/bert_rules.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "text/json_file.h"
#include "text/tokenizer_config.h"

namespace situ {
namespace {

using nlohmann::json;

// Source: the tokenization_*_fast.py of transformers 4.57; four of them leave tokenize_chinese_chars out.
std::optional<BertRules> rules_of(const std::string& class_name, const json& config) {
  static const std::set<std::string>
      kAll = {"BertTokenizer",      "ConvBertTokenizer",   "DPRContextEncoderTokenizer", "DPRQuestionEncoderTokenizer",
              "DPRReaderTokenizer", "DistilBertTokenizer", "ElectraTokenizer",           "FunnelTokenizer",
              "LayoutLMTokenizer",  "LxmertTokenizer",     "MobileBertTokenizer",        "RealmTokenizer",
              "RetriBertTokenizer", "SqueezeBertTokenizer"},
      kWithoutHan = {"LayoutLMv2Tokenizer", "MPNetTokenizer", "RoFormerTokenizer", "SplinterTokenizer"};
  const bool all = kAll.contains(class_name);
  if (!all && !kWithoutHan.contains(class_name)) return std::nullopt;
  const auto flag = [&](const char* name) -> std::optional<bool> {
    const auto it = config.find(name);
    return it != config.end() && it->is_boolean() ? std::optional<bool>(it->get<bool>()) : std::nullopt;
  };
  BertRules rules;
  rules.lower = flag("do_lower_case").value_or(true);
  rules.accents = flag("strip_accents");
  rules.han = all ? std::optional<bool>(flag("tokenize_chinese_chars").value_or(true)) : std::nullopt;
  return rules;
}

}  // namespace

Result<std::optional<BertRules>> bert_rules(const std::filesystem::path& folder) {
  const Result<TokenizerConfig> config = TokenizerConfig::load(folder);
  if (!config.is_ok()) return config.status();
  std::error_code failure;
  const std::filesystem::path file = folder / "tokenizer_config.json";
  if (!std::filesystem::is_regular_file(file, failure)) return rules_of(config->tokenizer_class, json::object());
  const Result<json> json = read_json_object(file);
  if (!json.is_ok()) return json.status();
  return rules_of(config->tokenizer_class, *json);
}

}  // namespace situ
