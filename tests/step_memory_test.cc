// Every allocation of a step fails in turn: the step is refused, all sessions are what they were, and the same step
// then gives what it gives undisturbed. And every one of a server: it answers the next request.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <limits>
#include <optional>

#include "base/sweep_for_tests.h"
#include "generate/allocation_counter_test.h"
#include "serve/protocols/openai/errors.h"
#include "serve/requests.h"
#include "serve/server.h"
#include "tiny_sessions.h"

namespace situ::test {
namespace {

using StepMemory = TinyModel;
constexpr int64_t kAll = std::numeric_limits<int32_t>::max();

// What is done to a model that has sessions: it is made anew for each try.
struct Scene {
  std::vector<Tokens> before, fed;  // by session; none are fed to a session that has no part in the step
  bool forks = false;               // all are forks of the first
};

struct Sessions {
  std::vector<Session> all;
  std::vector<Model::Feed> feeds;
  Sessions(Model& model, const Scene& scene) {
    for (size_t i = 0; i < scene.fed.size(); ++i)
      all.push_back(scene.forks && i > 0 ? all[0].fork().value()
                                         : session_of(model, static_cast<int64_t>(i), scene.before[i]));
    for (size_t i = 0; i < all.size(); ++i)
      if (!scene.fed[i].empty()) feeds.push_back({&all[i], scene.fed[i]});
  }
};

// Of a feed that is refused in any case: its code.
Rows rows_of(const Result<std::vector<Model::Logits>>& stepped) {
  EXPECT_TRUE(stepped.is_ok()) << stepped.status().message();
  Rows rows;
  if (!stepped.is_ok()) return rows;
  for (const Model::Logits& logits : *stepped)
    rows.push_back(logits.is_ok() ? copy_of(*logits) : std::vector<float>{static_cast<float>(logits.status().code())});
  return rows;
}

// Allocation number `n` fails, and in another try all from it on; false: the step does not come so far.
bool fails_at(Model& model, const Scene& scene, int64_t n, const Rows& want) {
  for (const int64_t count : {int64_t{1}, kAll}) {
    Sessions sessions(model, scene);
    std::vector<int64_t> lengths;
    for (const Session& s : sessions.all) lengths.push_back(s.length());
    const int64_t slots = free_slots(model);
    testing::fail_allocations(n, count);
    Result<std::vector<Model::Logits>> stepped = model.step(sessions.feeds);
    const bool failed = testing::fail_allocations(0, 0) > 0;
    if (!failed) {
      EXPECT_EQ(rows_of(stepped), want);
      return false;
    }
    if (!stepped.is_ok()) {
      EXPECT_EQ(stepped.status().code(), Code::kNoRoom) << stepped.status().message();
      EXPECT_EQ(free_slots(model), slots) << n;
      for (size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(sessions.all[i].length(), lengths[i]) << n;
      stepped = model.step(sessions.feeds);
    }
    EXPECT_EQ(rows_of(stepped), want) << "allocation " << n;
  }
  return true;
}

LoadOptions small() {
  LoadOptions options;
  options.context_length = 64;
  options.slots = 6 * 64;
  options.chunk = 8;
  options.threads = 1;  // which allocates the same; two would wait for each other beside other tests
  return options;
}

std::vector<Scene> scenes() {
  const auto t = some_tokens;
  return {
      {{t(3, 1)}, {t(1, 2)}, false},                                  // a token
      {{{}}, {t(29, 3)}, false},                                      // a prompt in pieces
      {{{}, t(9, 4), t(2, 5)}, {t(19, 6), t(1, 7), t(3, 8)}, false},  // prompts and answers
      {{t(5, 9), {}, {}}, {t(12, 1), t(1, 2), t(1, 3)}, true},        // branches of one session
      {{{}, {}, {}, t(4, 2), {}, {}}, {t(2, 1), t(1, 2), t(3, 3), t(1, 4), t(2, 5), t(1, 6)}, false},  // two steps
      {{{}, t(2, 1), {}}, {{-1}, t(1, 2), t(3, 3)}, false},  // refused: no such token
      {{t(60, 1), t(60, 2), t(60, 3), t(60, 4), t(60, 5), {}, {}},
       {t(1, 1), {}, {}, {}, {}, t(62, 2), t(62, 3)},
       false},  // no room
  };
}

TEST_P(StepMemory, EveryAllocationOfAStepFailsInTurn) {
  for (const Scene& scene : scenes()) {
    Rows want;
    {
      Model model = load(small());
      Sessions sessions(model, scene);
      want = rows_of(model.step(sessions.feeds));
    }
    // Steps of a model that has made none before allocate most, later ones what no step before has needed.
    Model used = load(small());
    const int64_t slots = free_slots(used);
    int64_t n = 0;
    while (fails_at(used, scene, n, want) && !HasFailure()) ++n;
    EXPECT_GT(n, 0);
    EXPECT_EQ(free_slots(used), slots);
    // A model is loaded for each of these.
    const int64_t stride = sweep_stride(23);
    n = 0;
    for (bool more = true; more && !HasFailure(); n += stride) {
      Model unused = load(small());
      more = fails_at(unused, scene, n, want);
    }
  }
}

// Of all that requests take, on either thread: each has an error, or what it has alone, and so have the next ones. A
// prompt that nobody had before is kept anew each time, and others go for it; choices fork; where three have slots for
// one and a half, some wait, and some give way.
TEST_P(StepMemory, RequestsToo) {
  struct Kind {
    int64_t prompts = 1, beams = 1, choices = 1;
    PrefixReuse reuse = PrefixReuse::kPrompts;
  };
  for (const Kind& kind : {Kind{}, Kind{1, 2}, Kind{1, 1, 2, PrefixReuse::kAll}, Kind{3}}) {
    LoadOptions load_options = small();
    if (kind.prompts > 1) load_options.slots = 64;
    Model model = load(load_options);
    GenerateOptions options;
    options.max_new_tokens = kind.prompts > 1 ? 16 : 4;
    options.ignore_eos = true;
    options.beams = kind.beams;
    options.choices = kind.choices;
    bool failed = false;
    const auto ask = [&](const std::vector<Prompt>& prompts, PrefixReuse reuse, int64_t failing = 0,
                         int64_t count = 0) {
      options.prefix_cache = reuse;
      testing::fail_allocations(failing, count);
      const Result<std::vector<Generation>> got = model.generate(prompts, options, nullptr);
      failed = testing::fail_allocations(0, 0) > 0;
      std::vector<Tokens> tokens(prompts.size());
      for (size_t i = 0; got.is_ok() && i < got->size(); ++i)
        if ((*got)[i].finish_reason != FinishReason::kError) tokens[i] = (*got)[i].output_ids;
      return tokens;
    };
    const int64_t free = free_slots(model) + model.stats().slots_kept;
    int64_t errors = 0;
    bool more = true;
    for (int64_t n = 0; more && !HasFailure(); n += n < 100 ? 1 : sweep_stride(17)) {
      std::vector<Prompt> prompts;
      for (int64_t p = 0; p < kind.prompts; ++p) prompts.emplace_back(some_tokens(20, 3 + n * kind.prompts + p));
      const std::vector<Tokens> want = ask(prompts, PrefixReuse::kOff), got = ask(prompts, kind.reuse, n, 1);
      more = failed;
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(std::ssize(want[i]), options.max_new_tokens);
        EXPECT_TRUE(got[i].empty() || got[i] == want[i])
            << "allocation " << n << ", prompt " << i << " of " << kind.prompts << ", " << kind.choices
            << " choices: " << ::testing::PrintToString(got[i]) << " instead of " << ::testing::PrintToString(want[i]);
        errors += got[i].empty();
      }
      EXPECT_EQ(ask(prompts, kind.reuse), want) << "after allocation " << n;
      // Rows of prompts and of answers are kept for themselves, in the same slots.
      if (kind.reuse == PrefixReuse::kPrompts) {
        EXPECT_EQ(free_slots(model) + model.stats().slots_kept, free) << "allocation " << n;
      }
    }
    EXPECT_GT(errors, 0);
    impl_of(model).between_steps([&] {
      PrefixCache* const prefixes = impl_of(model).prefixes();
      while (prefixes && prefixes->drop_oldest()) {
      }
      return true;
    });
    EXPECT_EQ(free_slots(model), free);
    if (kind.prompts > 1 && !model.has_encoder()) {
      EXPECT_GT(model.stats().preemptions, 0);
    }
  }
}

TEST_P(StepMemory, SessionsAndNaiveSteps) {
  LoadOptions options = small();
  for (const bool naive : {false, true}) {
    options.naive = naive;
    if (naive) options.slots = 0;
    Model model = load(options);
    Session want = session_of(model, 1, some_tokens(4, 1));
    const std::vector<float> logits = copy_of(want.step(some_tokens(2, 2)).value());
    // The naive mode allocates every value anew: some of them.
    const int64_t stride = naive ? sweeping() ? 23 : 61 : sweep_stride(7);
    bool more = true;
    for (int64_t n = 0; more && !HasFailure(); n += stride)
      for (const int64_t count : {int64_t{1}, kAll}) {
        Session session = session_of(model, 1, some_tokens(4, 1));
        const Tokens tokens = some_tokens(2, 2);
        testing::fail_allocations(n, count);
        const Status status = session.step(tokens).status();
        more = testing::fail_allocations(0, 0) > 0;
        if (!status.is_ok()) {
          EXPECT_EQ(status.code(), Code::kNoRoom) << status.message();
          EXPECT_EQ(session.length(), 4);
          EXPECT_EQ(copy_of(session.step(tokens).value()), logits) << "allocation " << n;
        }
      }
  }
}

TEST_P(StepMemory, Sources) {
  Model model = load(small());
  if (!model.has_encoder()) GTEST_SKIP() << "no encoder";
  const Prompt prompt = some_tokens(9, 3);
  const auto logits_of = [](Session session) { return copy_of(session.step(Tokens{2}).value()); };
  const auto fails = [&](Model& m, int64_t n, int64_t count, const std::vector<float>& want) {
    const auto free_rows = [&] {
      return impl_of(m).between_steps(
          [&] { return impl_of(m).in_place->states().space(SpaceKind::kSource).free_slots(); });
    };
    const int64_t slots = free_rows();
    testing::fail_allocations(n, count);
    Result<Session> session = m.new_session(prompt);
    const bool failed = testing::fail_allocations(0, 0) > 0;
    if (!session.is_ok()) {
      EXPECT_EQ(session.status().code(), Code::kNoRoom) << session.status().message();
      EXPECT_EQ(free_rows(), slots) << n;
      session = m.new_session(prompt);
    }
    EXPECT_EQ(logits_of(std::move(session).value()), want) << "allocation " << n;
    return failed;
  };
  const std::vector<float> want = logits_of(model.new_session(prompt).value());
  for (const int64_t count : {int64_t{1}, kAll})
    for (int64_t n = 0; fails(model, n, count, want) && !HasFailure(); ++n) {
    }
  // The first run prepares the encoder's program, by thousands of allocations: some of them.
  int64_t first = testing::allocations();
  {
    Model unused = load(small());
    first = testing::allocations();
    EXPECT_TRUE(unused.new_session(prompt).is_ok());
  }
  const int64_t all = testing::allocations() - first;
  for (int64_t i = 0; i < 16 && !HasFailure(); ++i) {
    Model unused = load(small());
    EXPECT_TRUE(fails(unused, all * i / 16, i % 2 ? 1 : kAll, want));
  }
}

// A client that allocates nothing.
class PlainClient {
 public:
  explicit PlainClient(const std::string& where) : port_(std::stoi(where.substr(where.rfind(':') + 1))) {}
  // What comes for these bytes until the connection ends, or `until`; then it goes.
  std::string_view ask(std::string_view bytes, std::string_view until) {
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size_t size = 0;
    if (connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
        send(s, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0)
      while (size < got_.size() && (until.empty() || text(size).find(until) == text(size).npos)) {
        const ssize_t part = recv(s, got_.data() + size, got_.size() - size, 0);
        if (part <= 0) break;
        size += static_cast<size_t>(part);
      }
    close(s);
    return text(size);
  }

 private:
  std::string_view text(size_t size) const { return {got_.data(), size}; }
  int port_;
  std::array<char, 1 << 18> got_{};
};

TEST_P(StepMemory, AServerToo) {
  if (load(small()).has_encoder()) return;  // the server does the same for its requests
  std::atomic<int64_t> finished = 0;
  serve::ServeOptions options;
  options.port = 0;
  options.log = [&](const std::string&) { ++finished; };
  LoadOptions tiny = small();
  tiny.pack_cache = false;
  std::unique_ptr<serve::Server> server =
      serve::Server::start(options, serve::HostedModels::of({{path_.string(), tiny}}, {}, tiny).value()).value();
  ASSERT_TRUE(server->load().is_ok());
  PlainClient client(server->where()[0]);
  const auto request = [](const std::string& line, const std::string& more, const std::string& body = "") {
    return line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more + "\r\n" + body;
  };
  const auto completion = [&](const std::string& body) {
    return request("POST /v1/completions", "Content-Length: " + std::to_string(body.size()) + "\r\n", body);
  };
  struct Kind {
    std::string bytes, right, until;
    size_t least = 0;
  };
  // What threads do with JSON takes memory where it is given back (nlohmann's destructors), which must be there.
  constexpr size_t kLarge = 4096;
  const std::string large = R"(, "user": ")" + std::string(20000, 'a') + R"("})",
                    asked = R"({"prompt": [5, 6, 7], "max_tokens": 40, "ignore_eos": true, "logprobs": 9)";
  const std::vector<Kind> kinds = {
      {request("GET /health/live", ""), "HTTP/1.1 200 ", ""},
      {request("GET /health", "X-Request-Id: a\r\n"), "HTTP/1.1 200 ", ""},
      {request("GET /nothing", ""), "HTTP/1.1 404 ", ""},
      {request("GET /health", "Origin: http://page\r\n"), "HTTP/1.1 403 ", ""},
      {"GET / HTTP/7\r\n\r\n", "HTTP/1.1 505 ", ""},                                                // no head
      {request("POST /tokenize", "Transfer-Encoding: chunked\r\n", "z\r\n"), "HTTP/1.1 400 ", ""},  // no body
      {completion(asked + large), "HTTP/1.1 200 ", "", kLarge},
      {completion(asked + R"(, "stream": true)" + large), "[DONE]", "", kLarge},
      {request("GET /debug/slots", ""), "HTTP/1.1 200 ", "data: ", kLarge},  // and it goes
  };
  int64_t all = 0;
  for (const Kind& kind : kinds) {
    const auto ask = [&] { return client.ask(kind.bytes, kind.until).find(kind.right) != std::string_view::npos; };
    ASSERT_TRUE(ask()) << kind.bytes.substr(0, 200);
    for (const int64_t count : {int64_t{1}, kAll}) {
      bool more = true;
      for (int64_t n = 0; more && !HasFailure(); ++n) {
        const int64_t before = finished;
        testing::fail_allocations(n, count, kind.least);
        const std::string_view got = client.ask(kind.bytes, kind.until);
        EXPECT_EQ(got.find("x-request-id: \r\n"), got.npos) << got;
        for (int wait = 0; wait < 30 && finished == before; ++wait) usleep(100);
        more = testing::fail_allocations(0, 0) > 0;
        all += more;
        EXPECT_TRUE(ask()) << kind.bytes.substr(0, 200) << "after allocation " << n;
      }
    }
  }
  EXPECT_GT(all, 100);
  server->stop();
  EXPECT_TRUE(server->drain(std::chrono::seconds(600)));  // none is counted as open
}

TEST_P(StepMemory, APromptLongerThanTheState) {
  const Model model = load(small());
  const bool encoder = model.has_encoder();
  for (const int64_t more : {0, 1}) {
    serve::Ask ask;
    ask.by = &model;
    ask.prompt_field = "prompt";
    const int64_t tokens = model.facts().slots + more;
    ask.prompts.push_back({encoder ? 1000 : tokens, encoder ? tokens : 0});
    const serve::Refusal refusal = serve::refusal_of(ask, Status::error(Code::kNoRoom, "why"));
    EXPECT_EQ(serve::words_of(refusal).status, more ? 400 : 503);
    EXPECT_STREQ(serve::words_of(refusal).code, more ? "context_length_exceeded" : "overloaded");
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, StepMemory, ::testing::Values("tiny/llama", "tiny/t5"), test_name);

}  // namespace
}  // namespace situ::test
