// vocab.json and merges.txt. The ids are those of GPT2Tokenizer, RobertaTokenizer and Qwen2Tokenizer of transformers.
#include <gtest/gtest.h>

#include "text/slow_tokenizer.h"
#include "text/test_models.h"
#include "text/tokenizer.h"

namespace situ {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\noid "
    "sha256:0000000000000000000000000000000000000000000000000000000000000000"
    "\nsize 2104556\n";

// Letters and the byte-level space, and three merges: 8 "ab", 9 "abc", 10 "cd".
class SlowFolder : public testing::TempFolder {
 public:
  SlowFolder() {
    json vocab;
    for (int i = 0; i < 8; ++i) vocab[std::string(1, static_cast<char>('a' + i))] = i;
    vocab["ab"] = 8, vocab["abc"] = 9, vocab["cd"] = 10, vocab["\xC4\xA0"] = 11;
    write("vocab.json", vocab.dump());
    write("merges.txt", "#version: 0.2\na b\nab c\nc d\n");
  }
  // All bytes, and nothing else.
  void with_bytes() const {
    json vocab;
    for (int byte = 0; byte < 256; ++byte) vocab[byte_symbol(byte)] = byte;
    write("vocab.json", vocab.dump());
    write("merges.txt", "");
  }
  std::string error() const { return FolderTokenizer::load(path()).status().message(); }
  Ids encoded(const std::string& text, bool special = false) const {
    const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(path());
    EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    const Result<Ids> ids = tokenizer->encode(text, special);
    EXPECT_TRUE(ids.is_ok()) << ids.status().message();
    return ids.is_ok() ? *ids : Ids{};
  }
};

TEST(SlowTokenizer, IsThatOfGpt2) {
  const SlowFolder folder;
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("abcd", true).value(), (Ids{9, 3}));
  EXPECT_EQ(tokenizer->encode("ab cd", true).value(), (Ids{8, 11, 10}));
  EXPECT_EQ(tokenizer->encode("a<|endoftext|>b", true).value(), (Ids{0, 12, 1}));
  EXPECT_EQ(tokenizer->decode(Ids{8, 11, 10, 12}, true).value(), "ab cd");
  EXPECT_EQ(tokenizer->decode(Ids{8, 12}, false).value(), "ab<|endoftext|>");
  EXPECT_EQ(tokenizer->vocab_size(), 13);
  EXPECT_EQ(tokenizer->special_token_id("eos_token"), 12);
  EXPECT_TRUE(tokenizer->is_special(12));
  EXPECT_EQ(tokenizer->encode("<|endoftext|> a\xC3\xA9", true).status().message(),
            "encode: vocab.json has no token for '\xC3\xA9', and no unknown token");
}

TEST(SlowTokenizer, ReadsMergesOfAnyLineEnds) {
  const SlowFolder folder;
  for (const char* merges :
       {"a b\nab c\nc d", "#version: 0.2 - of somebody\r\na b\r\nab c\r\n\r\nc d\r\n", "a  b\nab c\nc d\n\n"}) {
    folder.write("merges.txt", merges);
    EXPECT_EQ(folder.encoded("abc cd"), (Ids{9, 11, 10})) << merges;
  }
}

TEST(SlowTokenizer, ReadsTheFilesBeside) {
  const SlowFolder folder;
  folder.write("added_tokens.json", R"({"<x>": 13, "efg": 12})");
  folder.write("special_tokens_map.json", R"({"eos_token": "<x>", "unk_token": "<x>", "bos_token": {"content": "<s>"},
                                              "additional_special_tokens": ["<y>"]})");
  folder.write("tokenizer_config.json", R"({"add_bos_token": true, "tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(folder.encoded("a<x>efgh<y><s>"), (Ids{0, 13, 12, 7, 15, 14}));
  EXPECT_EQ(folder.encoded("a", true), (Ids{14, 0}));
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder.path());
  EXPECT_TRUE(tokenizer->is_special(13) && tokenizer->is_special(15) && !tokenizer->is_special(12));
  folder.write("tokenizer_config.json", R"({"add_prefix_space": true, "unk_token": "h", "added_tokens_decoder":
      {"20": {"content": "<z>", "special": true, "lstrip": true, "rstrip": false, "normalized": false}}})");
  EXPECT_EQ(folder.encoded("a <z>b"), (Ids{11, 0, 20, 1})) << "added_tokens.json is older";
  EXPECT_EQ(folder.encoded("ax"), (Ids{11, 0, 7})) << "unknown";
}

TEST(SlowTokenizer, ClassesWriteWhatTheyDo) {
  const SlowFolder folder;
  folder.with_bytes();
  const Ids words = {'a', 0x20, 'b'};
  EXPECT_EQ(folder.encoded("a b", true), words);
  for (const char* type : {"bart", "roberta"}) {
    folder.write("config.json", json{{"model_type", type}}.dump());
    EXPECT_EQ(folder.encoded("a b <mask>", true), (Ids{256, 'a', 0x20, 'b', 260, 257})) << "the mask takes the space";
  }
  folder.write("config.json", R"({"model_type": "whisper"})");
  folder.write("added_tokens.json", R"({"<|startoftranscript|>": 257, "<|notimestamps|>": 258, "<|endoftext|>": 256})");
  EXPECT_EQ(folder.encoded("a", true), (Ids{257, 258, 'a', 256}));
  folder.write("config.json", R"({"tokenizer_class": "Qwen2TokenizerFast"})");
  EXPECT_EQ(folder.encoded("e\xCC\x81", true), (Ids{0xC3, 0xA9})) << "normal form C";
  folder.write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_EQ(folder.encoded("e\xCC\x81", true), (Ids{'e', 0xCC, 0x81}));
}

TEST(SlowTokenizer, SaysHowToMakeTheOthers) {
  testing::TempFolder folder;
  const std::string path = folder.path().string();
  const std::string how =
      ": AutoTokenizer.from_pretrained('" + path + "').save_pretrained('" + path + "') of transformers makes it";
  const auto error = [&] { return FolderTokenizer::load(folder.path()).status(); };
  EXPECT_EQ(error().message(), path + ": no tokenizer.json");
  for (const char* file : {"vocab.txt", "spiece.model", "tokenizer.model", "vocab.json"}) {
    testing::TempFolder one;
    one.write(file, "{}");
    const std::string message = FolderTokenizer::load(one.path()).status().message();
    EXPECT_NE(message.find(std::string(": no tokenizer.json, only ") + file + ": AutoTokenizer.from_pretrained('"),
              std::string::npos)
        << message;
  }
  folder.write("vocab.json", "{\"a\": 0}");
  folder.write("merges.txt", "a a</w>\n");
  EXPECT_EQ(error().message(), path + ": no tokenizer.json, only vocab.json, merges.txt" + how);
  folder.write("config.json", R"({"model_type": "clip"})");
  EXPECT_EQ(error().message(), path + ": no tokenizer.json, only vocab.json, merges.txt of a CLIPTokenizer" + how);
  EXPECT_EQ(error().code(), Code::kNotFound);
}

TEST(SlowTokenizer, BadFilesAreErrors) {
  const SlowFolder folder;
  folder.write("merges.txt", "#version: 0.2\na b c\n");
  EXPECT_NE(folder.error().find("merges.txt: line 2: two tokens are expected"), std::string::npos);
  folder.write("merges.txt", "a x\n");
  EXPECT_NE(folder.error().find("out of vocabulary"), std::string::npos) << folder.error();
  folder.write("merges.txt", "");
  folder.write("vocab.json", R"({"a": -1})");
  EXPECT_NE(folder.error().find("the id of 'a' should be an integer"), std::string::npos);
  folder.write("vocab.json", "[");
  EXPECT_NE(folder.error().find("vocab.json: not JSON"), std::string::npos);
}

// Such a file is named, whatever it stands for, and is no error of a kind of its own: ids need no tokenizer.
TEST(SlowTokenizer, GitLfsPointersAreNamed) {
  for (const char* file : {"vocab.json", "merges.txt", "added_tokens.json", "tokenizer_config.json",
                           "special_tokens_map.json", "tokenizer.json"}) {
    const SlowFolder folder;
    folder.write(file, kPointer);
    const Status status = FolderTokenizer::load(folder.path()).status();
    EXPECT_EQ(status.message(),
              (folder.path() / file).string() + ": a git-lfs pointer, the file itself has not been downloaded");
    EXPECT_EQ(status.code(), Code::kNotFound);
  }
  const SlowFolder folder;
  folder.write("chat_template.jinja", kPointer);
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("a", true).value(), Ids{0});
  EXPECT_NE(tokenizer->apply_chat_template(R"([{"role": "user", "content": "a"}])", true)
                .status()
                .message()
                .find("git-lfs pointer"),
            std::string::npos);
}

}  // namespace
}  // namespace situ
