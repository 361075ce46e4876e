// Small model folders for the tests of src/text, made on the spot.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "text/byte_alphabet.h"

namespace situ::testing {

// A folder that is removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "situ_text_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  TempFolder(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

inline nlohmann::json special(int id, const std::string& text) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

inline nlohmann::json tokenizer_json(const nlohmann::json& vocab, const nlohmann::json& merges) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", nullptr},
          {"model",
           {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}, {"unk_token", nullptr}, {"byte_fallback", false}}}};
}

using situ::byte_symbol;

// Ids 0..255: the bytes; 256: "he"; 257: "llo"; 258: "<s>"; 259: "</s>". A text starts with <s>.
inline nlohmann::json byte_level_tokenizer() {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[byte_symbol(byte)] = byte;
  vocab["he"] = 256, vocab["ll"] = 260, vocab["llo"] = 257, vocab["<s>"] = 258, vocab["</s>"] = 259;
  nlohmann::json model = tokenizer_json(vocab, {"h e", "l l", "ll o"});
  const nlohmann::json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  model["pre_tokenizer"] = model["decoder"] = bytes;
  model["added_tokens"] = {special(258, "<s>"), special(259, "</s>")};
  model["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {258}}, {"tokens", {"<s>"}}}}}}};
  return model;
}

// As Llama 2: a leading space becomes U+2581, unknown characters become byte tokens. Ids 0..255: <0x00>..<0xFF>;
// 256: U+2581; 257: a; 258: b; 259: U+2581 a; 260: U+2581 b; 261: <s>.
inline nlohmann::json byte_fallback_tokenizer() {
  const std::string space = "\xE2\x96\x81";
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    vocab[name] = byte;
  }
  vocab[space] = 256, vocab["a"] = 257, vocab["b"] = 258, vocab[space + "a"] = 259, vocab[space + "b"] = 260;
  vocab["<s>"] = 261;
  nlohmann::json model = tokenizer_json(vocab, {space + " a", space + " b"});
  model["model"]["byte_fallback"] = true;
  const auto replace = [](const std::string& from, const std::string& to) {
    return nlohmann::json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  model["normalizer"] = {{"type", "Sequence"},
                         {"normalizers", {{{"type", "Prepend"}, {"prepend", space}}, replace(" ", space)}}};
  model["decoder"] = {{"type", "Sequence"},
                      {"decoders",
                       {replace(space, " "),
                        {{"type", "ByteFallback"}},
                        {{"type", "Fuse"}},
                        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  model["added_tokens"] = nlohmann::json::array({special(261, "<s>")});
  return model;
}

// The models for tests that are too large for the repository; a test that needs one is skipped where they are absent.
inline std::filesystem::path shared_model(const std::string& name) {
  const char* folder = std::getenv("SITU_SHARED");
  return std::filesystem::path(folder ? folder : SITU_SHARED_DEFAULT) / "models" / name;
}

// The cases of the model's expected.json: name, prompt, prompt_ids, greedy_ids, text; empty when it is absent.
inline nlohmann::json expected_cases(const std::filesystem::path& folder) {
  std::ifstream file(folder / "expected.json");
  return file ? nlohmann::json::parse(file)["cases"] : nlohmann::json::array();
}

}  // namespace situ::testing
