#include "cli/hub/client.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/one_line.h"
#include "cli/hub/cache.h"
#include "cli/hub/url.h"

namespace situ::hub {
namespace {

constexpr int kMostRedirects = 5, kPauses = 3;
constexpr int64_t kMostWait = 60;  // s that Retry-After may ask for

Status network(const std::string& what, const std::string& why) { return Status::error(what + ": " + why); }

// Of a token, from a file that may be anything.
Result<std::string> good_token(std::string token, const std::string& where) {
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.pop_back();
  while (!token.empty() && static_cast<unsigned char>(token.front()) <= ' ') token.erase(0, 1);
  const auto bad = [](char c) { return static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7F; };
  if (token.size() > 4096 || std::any_of(token.begin(), token.end(), bad))
    return Status::error(Code::kInvalidArgument, where + " holds no token: a word of letters and digits");
  return token;
}

Result<std::string> token_of_environment() {
  if (const char* token = std::getenv("HF_TOKEN"); token != nullptr && *token != 0)
    return good_token(token, "HF_TOKEN");
  const char* named = std::getenv("HF_TOKEN_PATH");
  const std::filesystem::path file =
      named != nullptr && *named != 0 ? std::filesystem::path(named) : hub_home() / "token";
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) return std::string();
  std::ifstream in(file, std::ios::binary);
  std::string token(8192, 0);
  in.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<size_t>(in.gcount()));
  return good_token(token, file.string());
}

int64_t retry_after(const HubAnswer& answer) {
  const std::string text = answer.header("retry-after");
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return error == std::errc() && end == text.data() + text.size() && seconds > 0 ? seconds : 0;
}

bool fails_for_a_while(int status) { return status == 408 || status == 429 || status >= 500; }

}  // namespace

std::string HubAnswer::header(const char* name) const {
  constexpr size_t kMostBytes = 8192;
  std::string value(kMostBytes, 0);
  const size_t size = situ_hub_header(answer_.get(), name, value.data(), value.size());
  value.resize(size <= kMostBytes ? size : 0);
  return value;
}

Result<size_t> HubAnswer::read(char* to, size_t room) {
  situ_hub_text error{};
  size_t size = 0;
  if (situ_hub_read(answer_.get(), to, room, &size, &error) != 0) return Status::error(error.text);
  return size;
}

Result<std::string> HubAnswer::text(size_t most) {
  std::string all;
  for (char piece[65536];;) {
    const Result<size_t> size = read(piece, sizeof piece);
    if (!size.is_ok()) return size.status();
    if (*size == 0) return all;
    all.append(piece, *size);
    if (all.size() > most)
      return Status::error(Code::kBadFile, "an answer of more than " + std::to_string(most) + " bytes");
  }
}

bool Attempts::pause(int64_t seconds) {
  if (failed_ == kPauses) return false;
  std::this_thread::sleep_for(std::chrono::seconds(seconds > 0 ? seconds : int64_t{1} << failed_));
  ++failed_;
  return true;
}

Result<HubClient> HubClient::create() {
  HubClient client;
  const char* named = std::getenv("HF_ENDPOINT");
  client.endpoint_ = named != nullptr && *named != 0 ? named : "https://huggingface.co";
  while (client.endpoint_.ends_with('/')) client.endpoint_.pop_back();
  SITU_RETURN_IF_ERROR(check_url(client.endpoint_).with_context("HF_ENDPOINT"));
  Result<std::string> token = token_of_environment();
  if (!token.is_ok()) return token.status();
  client.token_ = std::move(*token);
  if (!client.token_.empty() && !is_https(client.endpoint_) && !is_loopback(client.endpoint_))
    return Status::error(Code::kInvalidArgument, "HF_ENDPOINT " + client.endpoint_ +
                                                     ": a token goes over https, or over http to this machine only");
  return client;
}

Result<HubAnswer> HubClient::follow(const char* method, std::string url, uint64_t from, bool* for_good) const {
  const bool head = std::string_view(method) == "HEAD";
  for (int hops = 0;; ++hops) {
    const bool own = origin_of(url) == origin_of(endpoint_);
    situ_hub_answer* got = nullptr;
    situ_hub_text error{};
    const bool direct = !is_https(url) && is_loopback(url);  // no proxy reads what is sent to this machine
    const int code = situ_hub_send(method, url.c_str(), own ? token_.c_str() : "", from, direct, &got, &error);
    if (code != 0) {
      *for_good = code == SITU_HUB_FOR_GOOD;
      return network(origin_of(url), error.text);
    }
    HubAnswer answer(got, url);
    const std::string location = answer.header("location");
    const int status = answer.status();
    if (status < 300 || status >= 400 || location.empty()) return answer;
    Result<std::string> next = join_url(url, location);
    if (!next.is_ok()) return next.status().with_context("a redirect of " + origin_of(url));
    if (is_https(url) && !is_https(*next))
      return Status::error(Code::kInvalidArgument, origin_of(url) + " leads from https to '" + *next + "'");
    if (head && (origin_of(*next) != origin_of(endpoint_) || !answer.header("x-linked-etag").empty())) return answer;
    if (hops == kMostRedirects)
      return network(origin_of(url), "more than " + std::to_string(kMostRedirects) + " redirects");
    url = std::move(*next);
  }
}

Result<HubAnswer> HubClient::ask(const char* method, const std::string& url, uint64_t from,
                                 const std::string& what) const {
  for (Attempts attempts;;) {
    bool for_good = false;
    Result<HubAnswer> answer = follow(method, url, from, &for_good);
    if (!answer.is_ok()) {
      if (for_good || answer.status().code() != Code::kInternal || !attempts.pause())
        return one_line(answer.status().with_context(what));
      continue;
    }
    if (!fails_for_a_while(answer->status())) return answer;
    const int64_t wait = retry_after(*answer);
    const std::string said = "the hub answers " + std::to_string(answer->status());
    if (wait > kMostWait) return network(what, said + " and asks to wait for " + std::to_string(wait) + " s");
    if (!attempts.pause(wait)) return network(what, said);
  }
}

Result<HubAnswer> HubClient::get(const std::string& url, uint64_t from, const std::string& what) const {
  return ask("GET", url, from, what);
}

Result<HubAnswer> HubClient::head(const std::string& url, const std::string& what) const {
  return ask("HEAD", url, 0, what);
}

}  // namespace situ::hub
