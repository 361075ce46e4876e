// Requests to a hub: redirects, who gets the token, pauses where it fails for a while.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "cli/hub/situ_hub.h"

namespace situ::hub {

// Errors of this folder: kInternal and kNoRoom are failures outside of what was asked for (network, disk); others are
// of the name, or of a hub that is not to be trusted.

class HubAnswer {
 public:
  explicit HubAnswer(situ_hub_answer* answer, std::string url) : answer_(answer), url_(std::move(url)) {}
  int status() const { return situ_hub_status(answer_.get()); }
  std::string header(const char* name) const;
  const std::string& url() const { return url_; }  // behind redirects
  // The next bytes; 0: the end. Error: the connection broke.
  Result<size_t> read(char* to, size_t room);
  // All of them. Error: more than `most`.
  Result<std::string> text(size_t most);

 private:
  struct Free {
    void operator()(situ_hub_answer* a) const { situ_hub_free(a); }
  };
  std::unique_ptr<situ_hub_answer, Free> answer_;
  std::string url_;
};

// Attempts of something that may fail for a while: pauses of 1, 2 and 4 s between them, or what Retry-After says.
class Attempts {
 public:
  // Waits before another one, for `seconds` where the hub said so. False: there were enough.
  bool pause(int64_t seconds = 0);
  void progressed() { failed_ = 0; }

 private:
  int failed_ = 0;
};

class HubClient {
 public:
  // HF_ENDPOINT, and HF_TOKEN or the token's file. Error: they cannot be used.
  static Result<HubClient> create();
  const std::string& endpoint() const { return endpoint_; }
  bool has_token() const { return !token_.empty(); }

  // The answer to GET behind at most five redirects, with status 200 or 206; what fails for a while is tried again.
  // `from`: the first byte. `what`: names it in errors.
  Result<HubAnswer> get(const std::string& url, uint64_t from, const std::string& what) const;
  // The answer to HEAD: redirects within the hub are followed, not those elsewhere.
  Result<HubAnswer> head(const std::string& url, const std::string& what) const;

 private:
  // *for_good: another call has the same error.
  Result<HubAnswer> follow(const char* method, std::string url, uint64_t from, bool* for_good) const;
  Result<HubAnswer> ask(const char* method, const std::string& url, uint64_t from, const std::string& what) const;

  std::string endpoint_, token_;  // without a slash at the end
};

}  // namespace situ::hub
