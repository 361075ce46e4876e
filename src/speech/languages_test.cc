#include "speech/languages.h"

#include <gtest/gtest.h>

namespace situ {
namespace {

TEST(LanguageCode, OfNamesTokensAndCodes) {
  for (const char* text : {"English", "english", "ENGLISH", "en", "EN", "<|en|>"}) EXPECT_EQ(language_code(text), "en");
  EXPECT_EQ(language_code("Haitian Creole"), "ht");
  EXPECT_EQ(language_code("haitian"), "ht");
  EXPECT_EQ(language_code("Castilian"), "es");
  EXPECT_EQ(language_code("cantonese"), "yue");
  EXPECT_EQ(language_code("Afrikaans"), "af");
  EXPECT_EQ(language_code("Yoruba"), "yo");
  for (const char* text : {"", "auto", "klingon", "englisch", "<|>"}) EXPECT_EQ(language_code(text), text);
  EXPECT_EQ(language_code("Auto"), "auto");
}

}  // namespace
}  // namespace situ
