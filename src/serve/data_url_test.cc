#include "serve/data_url.h"

#include <gtest/gtest.h>

#include <string>

namespace situ::serve {
namespace {

// "": it is none, or it has no bytes.
std::string text_of(const std::optional<std::vector<uint8_t>>& bytes) {
  return bytes ? std::string(bytes->begin(), bytes->end()) : "";
}

TEST(DataUrl, IsReadAsTheFetchStandardReadsIt) {
  const std::pair<const char*, const char*> right[] = {
      {"data:image/png;base64,aGVsbG8=", "hello"},
      {"data:image/png;base64,aGVsbG8", "hello"},
      {"DATA:image/png;BASE64,aGVsbG8=", "hello"},
      {"dAtA:;bAsE64,aGVsbG8=", "hello"},
      {"data:;base64,aGVsbG8=", "hello"},
      {"data:image/png;charset=utf-8;base64,aGVsbG8=", "hello"},
      {"data:image/png; base64,aGVsbG8=", "hello"},
      {"data:image/png;   base64 ,aGVsbG8=", "hello"},
      {"data:image/png ;base64,aGVsbG8=", "hello"},
      {"data: image/png;base64,aGVsbG8=", "hello"},
      {"data:image/png;base64, aGVs\r\nbG8=\r\n", "hello"},
      {"data:image/png;base64,a G\tV\fs\nbG8=", "hello"},
      {"data:image/png;ba\nse64,aGVsbG8=", "hello"},
      {" \n data:image/png;base64,aGVsbG8= \n", "hello"},
      {"data:image/png;base64,aGVsbG8%3D", "hello"},
      {"data:image/png;base64,%61GVsbG8%3d%0A", "hello"},
      {"data:image/png;base64,Pj4%2BPz8%2f", ">>>???"},
      {"data:image/png;base64,aGVsbG8=#part", "hello"},
      {"data:,hello", "hello"},
      {"data:,h%65llo%2C%20you,too", "hello, you,too"},
      {"data:text/plain;base64;charset=utf-8,aGVs", "aGVs"},
      {"data:text/plain;xbase64,aGVs", "aGVs"},
      {"data:,100%", "100%"},
      {"data:,%zz%4", "%zz%4"},
  };
  for (const auto& [url, bytes] : right) {
    EXPECT_TRUE(is_data_url(url)) << url;
    EXPECT_EQ(text_of(bytes_of_data_url(url)), bytes) << url;
  }
  for (const char* url : {"data:image/png;base64", "data:", "data:#,a", "file:a,b", "", "dat:,a", "http://a/data:,b"})
    EXPECT_EQ(bytes_of_data_url(url), std::nullopt) << url;
  for (const char* url : {"data:;base64,aGVsb*==", "data:;base64,aGVsb", "data:;base64,aGVs-_", "data:;base64,%00"})
    EXPECT_EQ(bytes_of_data_url(url), std::nullopt) << url;
}

TEST(DataUrl, Base64IsForgiving) {
  EXPECT_EQ(from_base64(""), std::vector<uint8_t>{});
  EXPECT_EQ(text_of(from_base64("YQ")), "a");
  EXPECT_EQ(text_of(from_base64("YR==")), "a");  // bits that are too many do not count
  EXPECT_EQ(text_of(from_base64(" Y\nQ = = ")), "a");
  EXPECT_EQ(text_of(from_base64("YWI=")), "ab");
  EXPECT_EQ(text_of(from_base64("YWJj")), "abc");
  for (const char* text :
       {"Y", "YQ=", "YQ===", "YWI==", "YWJj=", "YWJj==", "=", "==", "Y=Q=", "YQ==YQ", "YWJ-", "Y\vQ"})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace situ::serve
