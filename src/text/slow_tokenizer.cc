#include "text/slow_tokenizer.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>

#include "base/lfs_pointer.h"
#include "text/byte_alphabet.h"
#include "text/json_file.h"
#include "text/vocabulary_file.h"

namespace situ {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Those of 150,000 merges have 2 MB.
constexpr uintmax_t kMostMergeBytes = uintmax_t{32} << 20;
// Of merges.txt, the first of which tell whether words end with a mark.
constexpr int64_t kMostMarkBytes = 1 << 16;
// An id that no vocabulary has.
constexpr int64_t kNothing = std::numeric_limits<uint32_t>::max();

using Space = SlowTokenizer::Space;
struct Special {
  const char* name;
  const char* text;
};
constexpr Special kOfGpt2[] = {
    {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
constexpr Special kOfQwen2[] = {
    {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}};
constexpr Special kOfRoberta[] = {{"bos_token", "<s>"},    {"eos_token", "</s>"},  {"unk_token", "<unk>"},
                                  {"sep_token", "</s>"},   {"pad_token", "<pad>"}, {"cls_token", "<s>"},
                                  {"mask_token", "<mask>"}};

// Classes whose tokens are bytes in GPT-2's alphabet. What transformers 4.57 gives them without being told.
struct Family {
  const char* classes;
  std::span<const Special> special;
  const char* around;       // a text, A: names of special tokens, or texts of tokens
  Space space;              // where add_prefix_space asks for one
  bool adds_space = false;  // without being asked
  bool qwen2 = false;       // its words and its normal form
};
constexpr Family kFamilies[] = {
    {"GPT2Tokenizer CodeGenTokenizer", kOfGpt2, "A", Space::kAlways},
    {"RobertaTokenizer BartTokenizer LongformerTokenizer LEDTokenizer MvpTokenizer", kOfRoberta,
     "cls_token A sep_token", Space::kUnlessThere},
    {"BlenderbotTokenizer", kOfRoberta, "A eos_token", Space::kUnlessThere, true},
    {"WhisperTokenizer", kOfGpt2, "<|startoftranscript|> <|notimestamps|> A eos_token", Space::kAlways},
    {"Qwen2Tokenizer", kOfQwen2, "A", Space::kNone, false, true},
};

const Family* family_of(const TokenizerConfig& config) {
  if (config.tokenizer_class.empty()) return &kFamilies[0];
  for (const Family& family : kFamilies) {
    std::istringstream classes(family.classes);
    for (std::string name; classes >> name;)
      if (name == config.tokenizer_class) return &family;
  }
  return nullptr;
}

using Merges = std::vector<std::pair<std::string, std::string>>;

// A line is two tokens that become one; the first may name a version.
Result<Merges> read_merges(const fs::path& file) {
  std::error_code failure;
  const uintmax_t size = fs::file_size(file, failure);
  if (failure) return Status::error(file.string() + ": " + failure.message());
  if (size > kMostMergeBytes)
    return Status::error(file.string() + ": " + std::to_string(size) + " bytes, the limit is " +
                         std::to_string(kMostMergeBytes));
  if (holds_lfs_pointer(file)) return lfs_pointer_error(file);
  std::ifstream in(file, std::ios::binary);
  if (!in) return Status::error(file.string() + ": cannot be read");
  Merges merges;
  std::string line, a, b, more;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line);
    a.clear(), b.clear(), more.clear();
    words >> a >> b >> more;
    if (a.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::string at = file.string() + ": line " + std::to_string(number) + ": ";
    if (b.empty() || !more.empty()) return Status::error(at + "two tokens are expected");
    merges.emplace_back(a, b);
  }
  return merges;
}

// The tokens of a folder, while they are put together.
struct Tokens {
  std::map<std::string, int64_t> ids;
  std::map<int64_t, TokenizerConfig::AddedToken> added;

  std::optional<int64_t> id(const std::string& text) const {
    const auto found = ids.find(text);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  }
  void add(const TokenizerConfig::AddedToken& token, int64_t id) {
    if (token.text.empty()) return;
    ids[token.text] = id;
    added[id] = token;
  }
  bool is_added(const std::string& text) const {
    return std::any_of(added.begin(), added.end(), [&](const auto& one) { return one.second.text == text; });
  }
  // Special tokens that no file gives an id come behind the others.
  void add_special(const std::string& text, bool strip_left) {
    if (text.empty() || is_added(text)) return;
    const auto taken = [&](int64_t id) {
      return std::any_of(ids.begin(), ids.end(), [&](const auto& one) { return one.second == id; });
    };
    int64_t next = static_cast<int64_t>(ids.size());
    if (!id(text))
      while (taken(next)) ++next;
    add({text, true, strip_left}, id(text).value_or(next));
  }
};

Status add_tokens(const fs::path& folder, const TokenizerConfig& config, Tokens* tokens) {
  for (const auto& [id, token] : config.added_tokens) tokens->add(token, id);
  std::error_code unknown;
  if (const fs::path file = folder / "added_tokens.json"; config.added_tokens.empty() && fs::exists(file, unknown)) {
    const Result<TokenIds> given = read_token_ids(file);
    if (!given.is_ok()) return given.status();
    const auto is_special = [&](const std::string& text) {
      const auto& more = config.additional_special_tokens;
      return std::find(more.begin(), more.end(), text) != more.end() ||
             std::any_of(config.special_tokens.begin(), config.special_tokens.end(),
                         [&](const auto& one) { return one.second == text; });
    };
    for (const auto& [text, id] : *given) {
      const bool special = is_special(text);
      tokens->add({text, special, false, false, !special}, id);
    }
  }
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto found = config.special_tokens.find(name); found != config.special_tokens.end())
      tokens->add_special(found->second, std::string_view(name) == "mask_token");
  for (const std::string& text : config.additional_special_tokens) tokens->add_special(text, false);
  return Status::ok();
}

// {"type": "TemplateProcessing", ...}; null where nothing stands around a text, or the vocabulary lacks a token.
json around_text(const Family& family, const TokenizerConfig& config, const Tokens& tokens) {
  json pieces = json::array(), special = json::object();
  std::istringstream parts(family.around);
  for (std::string part; parts >> part;) {
    if (part == "A") {
      pieces.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
      continue;
    }
    const auto named = config.special_tokens.find(part);
    const std::string text = named == config.special_tokens.end() ? part : named->second;
    const std::optional<int64_t> id = tokens.id(text);
    if (!id) return nullptr;
    pieces.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  }
  if (special.empty()) return nullptr;
  json pair = pieces;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 0}}}});
  return {{"type", "TemplateProcessing"}, {"single", pieces}, {"pair", pair}, {"special_tokens", special}};
}

json bytes_of(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

json words_of(const Family& family) {
  if (!family.qwen2) return bytes_of(true);
  constexpr const char* kWords =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", kWords}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, bytes_of(false)}}};
}

// Bytes that UTF-8 has; the others need no token.
bool in_texts(int byte) { return byte < 0xC0 || (byte > 0xC1 && byte < 0xF5); }

}  // namespace

bool is_slow_class(const fs::path& folder, const TokenizerConfig& config) {
  // Other classes mark the end of a word so, whatever their name: their tokens are characters, not bytes.
  std::ifstream merges(folder / "merges.txt", std::ios::binary);
  std::string line;
  for (int64_t read = 0; read < kMostMarkBytes && std::getline(merges, line); read += static_cast<int64_t>(line.size()))
    if (line.find("</w>") != std::string::npos) return false;
  return family_of(config) != nullptr;
}

Result<SlowTokenizer> read_slow_tokenizer(const fs::path& folder, TokenizerConfig& config) {
  const Family* family = family_of(config);
  if (!family) return Status::error("files of a " + config.tokenizer_class + " are not known");
  Result<TokenIds> vocabulary = read_token_ids(folder / "vocab.json");
  if (!vocabulary.is_ok()) return vocabulary.status();
  Result<Merges> merges = read_merges(folder / "merges.txt");
  if (!merges.is_ok()) return merges.status();
  for (const Special& s : family->special) config.special_tokens.emplace(s.name, s.text);
  Tokens tokens;
  for (auto& [token, id] : *vocabulary) tokens.ids.emplace(std::move(token), id);
  const auto unknown = config.special_tokens.find("unk_token");
  const bool knows_unknown = unknown != config.special_tokens.end() && tokens.ids.count(unknown->second) > 0;
  SlowTokenizer result;
  bool spells_all = true;
  for (int byte = 0; byte < 256; ++byte) {
    const bool spelled = tokens.ids.count(byte_symbol(byte)) > 0;
    if (spelled) result.spelled += static_cast<char>(byte);
    spells_all = spells_all && (spelled || !in_texts(byte));
  }
  SITU_RETURN_IF_ERROR(add_tokens(folder, config, &tokens));
  json added = json::array();
  for (const auto& [id, token] : tokens.added) {
    added.push_back({{"id", id},
                     {"content", token.text},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
    result.added.push_back(token.text);
  }
  json model = {{"type", "BPE"}, {"merges", *merges}, {"fuse_unk", false}, {"byte_fallback", false}};
  if (!spells_all) {
    std::string name = knows_unknown ? unknown->second : "<no token>";
    if (!knows_unknown) {
      while (tokens.ids.count(name) > 0) name += '>';
      tokens.ids.emplace(name, kNothing);
      result.nothing = kNothing;
    }
    model["unk_token"] = name;
  }
  model["vocab"] = tokens.ids;
  if (config.add_prefix_space.value_or(family->adds_space)) result.space = family->space;
  result.json = json{{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", family->qwen2 ? json{{"type", "NFC"}} : json(nullptr)},
                     {"pre_tokenizer", words_of(*family)},
                     {"post_processor", around_text(*family, config, tokens)},
                     {"decoder", bytes_of(true)},
                     {"model", std::move(model)}}
                    .dump();
  return result;
}

}  // namespace situ
