// The file of keys.
#include "serve/access.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "text/test_models.h"

namespace situ::serve {
namespace {

class KeysTest : public ::testing::Test {
 protected:
  Status read(const std::string& text) {
    folder_.write("keys", text);
    const std::string path = folder_.path() / "keys";
    std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return keys_.read(path);
  }
  situ::testing::TempFolder folder_;
  Keys keys_;
};

TEST_F(KeysTest, LinesHaveNamesAndPriorities) {
  ASSERT_TRUE(read("# keys\nann:sk-1 priority=3\nsk-2\nbob: sk-3\t priority=-2\nsk-4 priority=7\n").is_ok());
  EXPECT_EQ(keys_.holder_of("sk-1")->name, "ann");
  EXPECT_EQ(keys_.holder_of("sk-1")->most_priority, 3);
  EXPECT_EQ(keys_.holder_of("sk-2")->name, "key3");
  EXPECT_EQ(keys_.holder_of("sk-2")->most_priority, 0);
  EXPECT_EQ(keys_.holder_of("sk-3")->most_priority, -2);
  EXPECT_EQ(keys_.holder_of("sk-4")->most_priority, 7);
  EXPECT_FALSE(keys_.holder_of("sk-1 priority=3"));
  for (const char* line : {"sk-1 priority=", "sk-1 priority=x", "sk-1 priority=1.5", "sk-1 priority=12345678901"}) {
    const Status wrong = read(std::string("sk-0\n") + line + "\n");
    EXPECT_NE(wrong.message().find("line 2 should end with priority=N"), std::string::npos) << wrong.message();
  }
}

// Whoever writes a line otherwise has meant something that it does not do.
TEST_F(KeysTest, LinesHaveNothingElse) {
  for (const char* line : {"a:ka priority=3 priority=4", "a:ka PRIORITY=3", "a:ka priority=3 # note", "a:ka # note",
                           "a:ka priority = 3"}) {
    const Status wrong = read(std::string("sk-0\n") + line + "\n");
    EXPECT_NE(wrong.message().find("keys: line 2 has a blank in its key"), std::string::npos)
        << line << wrong.message();
    EXPECT_EQ(wrong.message().find("ka"), std::string::npos) << wrong.message();
  }
  const Status twice = read("a:ka\n# b\nb:ka priority=1\n");
  EXPECT_NE(twice.message().find("keys: line 3 has the key of another line"), std::string::npos) << twice.message();
}

// Kept beginnings of prompts go by the name, and where there is none by the key, wherever its line stands.
TEST_F(KeysTest, SaltsStayWhereLinesMove) {
  ASSERT_TRUE(read("ann:sk-1\nsk-2\nsk-3\n").is_ok());
  const std::string ann = keys_.holder_of("sk-1")->salt, second = keys_.holder_of("sk-2")->salt;
  EXPECT_NE(second, keys_.holder_of("sk-3")->salt);
  EXPECT_EQ(second.find("sk-2"), std::string::npos);
  ASSERT_TRUE(read("sk-3\nsk-2\nann:sk-9\n").is_ok());
  EXPECT_EQ(keys_.holder_of("sk-9")->salt, ann);
  EXPECT_EQ(keys_.holder_of("sk-2")->salt, second);
}

}  // namespace
}  // namespace situ::serve
