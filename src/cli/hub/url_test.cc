// Addresses and names that strangers write.
#include "cli/hub/url.h"

#include <gtest/gtest.h>

#include "cli/hub/name.h"

namespace situ::hub {
namespace {

TEST(HubUrl, Origins) {
  EXPECT_EQ(origin_of("https://Hub.Example/a/b?c"), "https://hub.example:443");
  EXPECT_EQ(origin_of("HTTP://127.0.0.1:8080"), "http://127.0.0.1:8080");
  EXPECT_EQ(origin_of("http://[::1]:81/x"), "http://[::1]:81");
  EXPECT_EQ(origin_of("http://a?b:1@c/"), "http://a:80");
  EXPECT_NE(origin_of("https://hub.example.evil.example/"), origin_of("https://hub.example/"));
  EXPECT_NE(origin_of("http://hub.example:443/"), origin_of("https://hub.example/"));
}

TEST(HubUrl, WhatIsRefused) {
  for (const char* url :
       {"", "hub.example", "ftp://a/", "file:///etc/passwd", "http://", "http:///x", "https://a@b/", "https://a:b@c/",
        "https://a\\@b/", "http://a b/", "http://a/\r\nx: y", "http://a:0/", "http://a:65536/", "http://a:x/",
        "http://a:1x/", "http://[]/", "http://[::1]x/", "http://a/\x7f"})
    EXPECT_FALSE(check_url(url).is_ok()) << url;
  for (const char* url : {"https://hub.example", "http://127.0.0.1:1/a?b=c#d", "http://[::1]/"})
    EXPECT_TRUE(check_url(url).is_ok()) << url;
}

TEST(HubUrl, Loopback) {
  for (const char* url : {"http://localhost/", "http://127.0.0.1:3/", "http://127.9.9.9/", "http://[::1]:3/"})
    EXPECT_TRUE(is_loopback(url)) << url;
  for (const char* url :
       {"http://127.0.0.1.evil.example/", "http://localhost.evil.example/", "http://10.0.0.1/", "http://1270.0.0.1/"})
    EXPECT_FALSE(is_loopback(url)) << url;
}

TEST(HubUrl, Redirects) {
  const auto join = [](const char* url, const char* location) {
    const Result<std::string> made = join_url(url, location);
    return made.is_ok() ? *made : "refused";
  };
  EXPECT_EQ(join("https://a/b/c?d", "https://e/f"), "https://e/f");
  EXPECT_EQ(join("https://a/b/c?d", "//e/f"), "https://e/f");
  EXPECT_EQ(join("https://a/b/c?d", "/f"), "https://a/f");
  EXPECT_EQ(join("https://a/b/c?d/e", "f"), "https://a/b/f");
  EXPECT_EQ(join("https://a", "f"), "https://a/f");
  EXPECT_EQ(join("https://a?b/c", "f"), "https://a/f");
  for (const char* location : {"file:///etc/passwd", "javascript:x", "//a@b/", "https://", "/a\r\nb"})
    EXPECT_EQ(join("https://a/b", location), "refused") << location;
  EXPECT_EQ(encode("a b/c?d%", "/"), "a%20b/c%3Fd%25");
  EXPECT_EQ(encode("refs/pr/3"), "refs%2Fpr%2F3");
}

TEST(HubName, Parts) {
  const auto parts = [](const std::string& text) {
    const Result<std::optional<ModelName>> name = parse_name(text);
    if (!name.is_ok()) return std::string("refused");
    return *name ? (*name)->repository + " " + (*name)->revision + " " + (*name)->variant : "no name";
  };
  EXPECT_EQ(parts("org/repo"), "org/repo main ");
  EXPECT_EQ(parts("org/repo@v1.0:q4"), "org/repo v1.0 q4");
  EXPECT_EQ(parts("org/repo@refs/pr/3:a/b:c"), "org/repo refs/pr/3 a/b:c");
  EXPECT_EQ(parts("org/repo:a@b"), "org/repo main a@b");
  EXPECT_EQ(parts("whisper-tiny:fp16"), "Xenova/whisper-tiny main fp16");
  for (const char* text : {"", "repo", "/org/repo", "./org/repo", "../x", "a/b/c", "org/re--po", "org/re..po", "a b/c",
                           "org/", "org/repo.git", "-a/b"})
    EXPECT_EQ(parts(text), "no name") << text;
  for (const char* text : {"org/repo@", "org/repo@a/../b", "org/repo@/a", "org/repo@a b", "org/repo:", "org/repo:../x",
                           "org/repo:/x", "org/repo:a\\b"})
    EXPECT_EQ(parts(text), "refused") << text;
}

TEST(HubName, ShortNamesAreNames) {
  for (const ShortName& name : short_names()) {
    const Result<std::optional<ModelName>> repository = parse_name(name.repository);
    ASSERT_TRUE(repository.is_ok() && *repository) << name.name;
    EXPECT_EQ((*repository)->repository, name.repository);
    EXPECT_NE(std::string(name.source).find(name.repository), std::string::npos) << name.name;
  }
}

}  // namespace
}  // namespace situ::hub
