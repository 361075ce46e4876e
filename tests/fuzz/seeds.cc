// Writes inputs to start from: seeds FOLDER. They are what the tests' own writers make.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "audio/test_audio.h"
#include "audio/tone_files.h"
#include "base/test_npy.h"
#include "onnx/test_model.h"
#include "text/test_models.h"
#include "text/test_pieces.h"
#include "vision/test_images.h"

namespace situ {
namespace {

using namespace std::string_literals;

class Seeds {
 public:
  explicit Seeds(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void add(const std::string& target, const std::string& bytes) {
    std::filesystem::create_directories(folder_ / target);
    std::ofstream(folder_ / target / ("seed" + std::to_string(count_++)), std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

void add_models(Seeds& seeds) {
  seeds.add("importer", onnx::test::everything());
  onnx::test::GraphText small;
  small.inputs = {onnx::test::value("x", DType::kF32, {"B", "4"})};
  small.outputs = {onnx::test::value("y", DType::kF32, {"B", "4"})};
  small.nodes = {onnx::test::node("Relu", {"x"}, {"y"})};
  seeds.add("importer", onnx::test::model(small.bytes()));
  seeds.add("external_data", "location=data.bin\noffset=4\nlength=16\n");
  seeds.add("external_data", "type 2 5 2\nlocation=below/more.bin\nchecksum=abc\n\nlocation=data.bin\nlength=16\n");
  seeds.add("external_data", "type 22 8\nlocation=link.bin\noffset=60\nlength=4\n\nlocation=./below/../data.bin\n");
  seeds.add("external_data", "type 11 0\nlocation=empty.bin\n\ntype 1\nlocation=out.bin\n\nlocation=loop.bin\n");
}

nlohmann::json model_of(const std::string& type, const nlohmann::json& more) {
  nlohmann::json file = testing::tokenizer_json(nlohmann::json::object(), nlohmann::json::array());
  file["model"] = more;
  file["model"]["type"] = type;
  return file;
}

nlohmann::json steps(const std::string& list, const nlohmann::json& all) { return {{"type", "Sequence"}, {list, all}}; }

void add_tokenizers(Seeds& seeds) {
  using nlohmann::json;
  // Few tokens: an input of some hundred bytes is changed where it matters.
  json bytes = testing::byte_level_tokenizer(), pieces = testing::byte_fallback_tokenizer();
  for (int byte = 128; byte < 256; ++byte) bytes["model"]["vocab"].erase(testing::byte_symbol(byte));
  seeds.add("tokenizer_json", bytes.dump() + "\0hello <s>there, 12 cats  "s);
  pieces["model"]["vocab"] = {{SITU_SPACE, 0}, {"a", 1}, {SITU_SPACE "a", 2}, {"<0x41>", 3}, {"<s>", 4}};
  pieces["model"]["merges"] = {SITU_SPACE " a"};
  pieces["added_tokens"] = json::array({testing::special(4, "<s>")});
  seeds.add("tokenizer_json", pieces.dump());
  json unigram = model_of("Unigram", {{"unk_id", 0}, {"vocab", {{"<unk>", 0}, {SITU_SPACE "a", -1.5}, {"b", -2}}}});
  unigram["pre_tokenizer"] = unigram["decoder"] = {
      {"type", "Metaspace"}, {"replacement", SITU_SPACE}, {"prepend_scheme", "always"}, {"split", true}};
  unigram["normalizer"] = steps(
      "normalizers", {{{"type", "NFKC"}}, {{"type", "Lowercase"}}, {{"type", "StripAccents"}}, {{"type", "Nmt"}}});
  seeds.add("tokenizer_json", unigram.dump());
  json words = model_of("WordPiece", {{"unk_token", "[UNK]"},
                                      {"continuing_subword_prefix", "##"},
                                      {"max_input_chars_per_word", 100},
                                      {"vocab", {{"[UNK]", 0}, {"a", 1}, {"##b", 2}, {"[SEP]", 3}, {"[CLS]", 4}}}});
  words["normalizer"] = {{"type", "BertNormalizer"},
                         {"clean_text", true},
                         {"handle_chinese_chars", true},
                         {"strip_accents", nullptr},
                         {"lowercase", true}};
  words["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  words["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  words["post_processor"] = {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 4}}};
  seeds.add("tokenizer_json", words.dump());
  json level = model_of("WordLevel", {{"unk_token", "u"}, {"vocab", {{"u", 0}, {"a", 1}, {"12", 2}}}});
  level["pre_tokenizer"] =
      steps("pretokenizers",
            {{{"type", "Split"}, {"pattern", {{"Regex", "\\s+|\\p{L}+"}}}, {"behavior", "Isolated"}, {"invert", false}},
             {{"type", "Digits"}, {"individual_digits", true}},
             {{"type", "Punctuation"}, {"behavior", "MergedWithNext"}}});
  level["decoder"] =
      steps("decoders", {{{"type", "BPEDecoder"}, {"suffix", "</w>"}},
                         {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", "b"}},
                         {{"type", "CTC"}, {"pad_token", "<pad>"}, {"word_delimiter_token", "|"}, {"cleanup", true}}});
  seeds.add("tokenizer_json", level.dump());
}

void add_piece_models(Seeds& seeds) {
  for (const int type : {1, 2, 3, 4}) seeds.add("sentencepiece", testing::piece_model(testing::kPieces, "", type));
  const std::string map = testing::chars_map(0, 1 << 10 | 1 << 8 | 'a', 0, "t\0"s);
  seeds.add("sentencepiece", testing::piece_model({{"<unk>", 0, 2}, {"t", -1, 1}, {"<0x41>", -1, 6}}, map));
}

void add_templates(Seeds& seeds) {
  seeds.add("chat_template",
            "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}\n{{- m.content | trim }}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}");
  seeds.add("chat_template",
            "{%- set ns = namespace(n=0, found=false) -%}{% macro f(x, y=2) %}{{ x ~ y }}{% endmacro %}"
            "{% for t in tools if t.name is defined %}{% set ns.n = ns.n + loop.index0 %}{{ t | tojson(indent=2) }}"
            "{% endfor %}{{ f(ns.n, messages[0].content[::-1]) }}{{ bos_token.split('<')[-1].upper() }}");
  seeds.add("chat_template",
            "{{ messages | map(attribute='role') | join(', ') }}{{ '%05.1f' | format(3.14159) }}{{ [1, 2] * 3 }}"
            "{% if messages | length > 1 and 'x' not in messages[1] %}{{ raise_exception('no') }}{% endif %}");
  seeds.add("chat_template",
            "{{ messages[0]['a'] }}{{ b.items() | list }}{{ strftime_now('%Y') }}\0"
            "[{\"a\": [1, null, 2.5e3, true, \"\\u00e9\"]}]\0{\"b\": {\"c\": {}}}"s);
}

void add_grammars(Seeds& seeds) {
  seeds.add("json_schema", R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9},
    "b": {"enum": ["x", 1, null]}}, "required": ["a"], "additionalProperties": false})");
  seeds.add("json_schema", R"({"$defs": {"t": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/t"},
    {"type": "string", "pattern": "^[a-c]{2,3}$"}]}, "minItems": 1, "maxItems": 3}}, "$ref": "#/$defs/t"})");
  seeds.add("json_schema", R"({"allOf": [{"type": "number", "multipleOf": 0.5}, {"exclusiveMinimum": -3}]})");
  seeds.add("json_schema", R"({"type": "string", "format": "date", "minLength": 2, "maxLength": 20})");
  seeds.add("json_schema", R"({"prefixItems": [{"const": 1}, {"type": ["boolean", "null"]}], "items": false})");
  seeds.add("json_schema", R"({"oneOf": [{"type": "object", "patternProperties": {"^x": {}}, "minProperties": 1}]})");
  seeds.add("grammar", "start: word (\" \" word){0,3} | NUMBER\nword: /[a-z]+/\nNUMBER: \"0\" .. \"9\"\n");
  seeds.add("grammar", "start: %json {\"type\": \"boolean\"} tail?\ntail: \",\"i [\"x\"] ~ 2..4\n%ignore /[ \\t]+/\n");
  seeds.add("grammar", "%import common.INT\nstart: INT a*\na: (\"b\" | \"c\")+ start // comment\n");
  seeds.add("grammar", "(yes|no)[^a-z\\d]{2,3}(?i:x)\\p{Lu}?.*$");
}

void add_media(Seeds& seeds) {
  using namespace test_audio;
  using test_npy::header;
  using test_npy::npy;
  seeds.add("audio", pcm16(sine(440, 44100, 300), 44100).bytes());
  Wav wav{.tag = 3, .channels = 2, .bits = 64, .rate = 8000};
  seeds.add("audio", wav.put(std::span<const double>(std::vector<double>(50, 0.25))).bytes());
  seeds.add("audio", Wav{.tag = 7, .bits = 8, .data = std::string(200, 'u')}.bytes());
  for (const auto base64 : {kFlacTone, kOggFlacTone, kMp3Tone, kVorbisTone, kOpusTone})
    seeds.add("audio", from_base64(base64));
  for (const auto& image : test_images::all()) seeds.add("image", test_images::bytes_of(image.digits));
  seeds.add("npy", npy(header("'<f4'", "(2, 3)"), test_npy::kFloats));
  seeds.add("npy", npy(header("'|b1'", "(2, 1, 2,)"), "\1\0\1\1"s, 2));
  seeds.add("npy", npy(header("'<i8'", "()"), std::string(8, 'x'), 3));
}

// A text with the value of each name in it: $name.
std::string filled(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values)
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
      text.replace(at, name.size(), value);
  return text;
}

// Bodies of chat and of Messages: conversations with tools, calls, results, reasoning, images, answers of one form.
void add_bodies(Seeds& seeds) {
  const std::string schema =
      R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
    "unit": {"enum": ["C", "F"]}, "more": {"type": "array", "items": {"$ref": "#/$defs/m"}}}, "required": ["city"],
    "additionalProperties": false, "$defs": {"m": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}})";
  const std::string pixel =
      "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";
  const std::string function = R"({"type": "function", "function": {"name": "weather", "description": "Of a city",
    "strict": true, "parameters": )" +
                               schema + "}}";
  const auto add = [&](const std::string& target, const std::string& model, const std::string& body) {
    const std::map<std::string, std::string> values = {
        {"$model", model}, {"$schema", schema}, {"$function", function}, {"$pixel", pixel}};
    seeds.add(target, filled(body, values));
  };
  for (const char* model :
       {"qwen3", "plain", "mistral", "llama3", "channels", "coder", "deepseek", "python", "literals"}) {
    add("chat_body", model, R"({"model": "$model", "max_tokens": 9, "tools": [$function], "messages": [
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Oslo?"}]},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{"id": "call_1",
        "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "4"}]})");
    add("messages_body", model,
        R"({"model": "$model", "max_tokens": 9, "system": [{"type": "text", "text": "Be brief."}],
      "tools": [{"name": "weather", "description": "Of a city", "input_schema": $schema}],
      "thinking": {"type": "enabled", "budget_tokens": 1024}, "messages": [{"role": "user", "content": "Oslo?"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "So."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "a"}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [
        {"type": "text", "text": "4"}]}, {"type": "text", "text": "?", "cache_control": {"type": "ephemeral"}}]}]})");
  }
  add("chat_body", "", R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true, "n": 2, "stop": ["a"],
    "stream_options": {"include_usage": true}, "reasoning_effort": "low", "response_format": {"type": "json_schema",
    "json_schema": {"name": "a", "strict": true, "schema": $schema}}})");
  add("chat_body", "", R"({"tools": [$function], "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "parallel_tool_calls": false, "messages": [{"role": "user", "content": [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,$pixel"}}]}]})");
  add("chat_body", "", R"({"prompt_token_ids": [1, 2], "logprobs": true, "top_logprobs": 2, "regex": "a|b"})");
  add("messages_body", "", R"({"max_tokens": 1, "system": "Be brief.", "stop_sequences": ["a"], "messages": [
    {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
    "data": "$pixel"}}]}], "tools": [{"name": "now", "input_schema": {"type": "object"}}, {"type": "web_search_1",
    "name": "s"}], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "output_config":
    {"format": {"type": "json_schema", "schema": $schema}, "effort": "low"}})");
}

}  // namespace
}  // namespace situ

int main(int count, char** arguments) {
  if (count != 2) return 2;
  situ::Seeds seeds(arguments[1]);
  situ::add_models(seeds);
  situ::add_tokenizers(seeds);
  situ::add_piece_models(seeds);
  situ::add_templates(seeds);
  situ::add_grammars(seeds);
  situ::add_media(seeds);
  situ::add_bodies(seeds);
}
