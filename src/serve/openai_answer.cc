// OpenAiAnswer of the public API: the bodies of `situ serve` without a server.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "pipelines/llm.h"
#include "serve/body_answer.h"
#include "serve/json_body.h"
#include "serve/protocols/openai/embeddings.h"
#include "situ/tools.h"
#include "text/json_file.h"

namespace situ {

using serve::BodyAnswer;
using serve::Json;
using serve::OrRefusal;

struct OpenAiAnswer::Impl {
  explicit Impl(const Model& of) : model(of) {}
  Model model;
  std::mutex turn;  // of who looks at the answer, never while it is waited for; of what follows
  const serve::Protocol* protocol = &serve::protocol_of("");
  int status = 200;
  bool streams = false;
  std::deque<std::string> ready;
  std::unique_ptr<BodyAnswer> answer;  // null: nothing runs
  std::mutex mutex;                    // of news
  std::condition_variable changed;
  bool news = true;

  ~Impl() { answer.reset(); }

  void put(const Json& json) { ready.push_back(json_text(json)); }
  void put(const std::vector<serve::Piece>& pieces) {
    for (const serve::Piece& piece : pieces) ready.push_back(piece.json);
  }
  void fail(const serve::Refusal& refusal) {
    const serve::ErrorText error = protocol->error(refusal, "");
    if (!streams) status = error.status;
    ready.push_back(error.json);
    answer.reset();
  }
  void begin(const std::string& url, const std::string& text, const std::string& model_name);
  void advance();
  void tell() {
    const std::lock_guard held(mutex);
    news = true;
    changed.notify_all();
  }
};

void OpenAiAnswer::Impl::begin(const std::string& url, const std::string& text, const std::string& model_name) {
  const bool counts = url == "/v1/messages/count_tokens";  // whose answer is no answer of a model
  const serve::Protocol* answering = counts ? nullptr : serve::reading_protocol(url);
  if (answering) protocol = answering;
  if (!answering && url != serve::kEmbeddingsUrl)
    return fail({serve::Refusal::Kind::kNoPath, "", "there is no call '" + url.substr(0, 100) + "'"});
  OrRefusal<Json> read = serve::parse_body(text);
  if (const serve::Refusal* f = std::get_if<serve::Refusal>(&read)) return fail(*f);
  const Json& body = std::get<Json>(read);
  OrRefusal<std::string> named = serve::model_of(body);
  if (const serve::Refusal* f = std::get_if<serve::Refusal>(&named)) return fail(*f);
  const std::string& given = std::get<std::string>(named);
  const std::string name = given.empty() ? model_name : given;
  if (!answering) {
    int64_t tokens = 0;
    const OrRefusal<Json> made = serve::answer_embeddings(model, body, name, false, &tokens);
    if (const serve::Refusal* f = std::get_if<serve::Refusal>(&made)) return fail(*f);
    return put(std::get<Json>(made));
  }
  OrRefusal<serve::Ask> asked = protocol->read(body, model, {});
  if (const serve::Refusal* f = std::get_if<serve::Refusal>(&asked)) return fail(*f);
  serve::Ask& ask = std::get<serve::Ask>(asked);
  OrRefusal<std::vector<Request>> requests = serve::requests_of(ask);
  if (const serve::Refusal* f = std::get_if<serve::Refusal>(&requests)) return fail(*f);
  const Served& served = impl_of(model);
  const int64_t most = served.queue_limit + std::min(served.running_limit, served.rows());
  if (const std::optional<serve::Refusal> f = too_many_prompts(ask, most, "in a model")) return fail(*f);
  const bool stream = ask.stream;
  for (Request& r : std::get<std::vector<Request>>(requests)) r.interactive = stream;
  OrRefusal<std::unique_ptr<BodyAnswer>> begun =
      BodyAnswer::begin(model, *protocol, std::move(ask), std::move(std::get<std::vector<Request>>(requests)),
                        {protocol->new_id(), now_seconds(), name, {}, {}, serve::fingerprint_of(model)});
  if (const serve::Refusal* f = std::get_if<serve::Refusal>(&begun)) return fail(*f);
  streams = stream;
  answer = std::move(std::get<std::unique_ptr<BodyAnswer>>(begun));
  if (stream) put(answer->first_pieces());
  answer->on_ready([this] { tell(); });
}

void OpenAiAnswer::Impl::advance() {
  if (!answer) return;
  std::vector<serve::Piece> pieces;
  const std::optional<serve::Refusal> refusal = answer->advance([](size_t) {}, pieces);
  put(pieces);
  if (refusal) return fail(*refusal);
  if (!answer->over()) return;
  if (streams)
    put(answer->last_pieces({}));
  else
    put(answer->whole({}));
  answer.reset();
}

OpenAiAnswer::OpenAiAnswer(const Model& model, const std::string& url, const std::string& body,
                           const std::string& model_name)
    : impl_(std::make_unique<Impl>(model)) {
  impl_->begin(url, body, model_name);
}
OpenAiAnswer::OpenAiAnswer(OpenAiAnswer&&) noexcept = default;
OpenAiAnswer& OpenAiAnswer::operator=(OpenAiAnswer&&) noexcept = default;
OpenAiAnswer::~OpenAiAnswer() = default;

int OpenAiAnswer::status() const {
  const std::lock_guard held(impl_->turn);
  return impl_->status;
}
bool OpenAiAnswer::streams() const { return impl_->streams; }
bool OpenAiAnswer::ended() const {
  const std::lock_guard held(impl_->turn);
  return impl_->ready.empty() && !impl_->answer;
}

void OpenAiAnswer::cancel() {
  {
    const std::lock_guard held(impl_->turn);
    impl_->answer.reset();
    impl_->ready.clear();
  }
  impl_->tell();  // who waits
}

std::optional<std::string> OpenAiAnswer::next(std::chrono::milliseconds patience) {
  Impl& m = *impl_;
  const Clock::time_point end = Clock::now() + patience;
  std::unique_lock turn(m.turn);
  while (m.ready.empty()) {
    if (!m.answer) return std::nullopt;
    turn.unlock();
    {
      std::unique_lock held(m.mutex);
      if (!m.changed.wait_until(held, end, [&] { return m.news; })) return std::nullopt;
      m.news = false;
    }
    turn.lock();
    m.advance();
  }
  std::string piece = std::move(m.ready.front());
  m.ready.pop_front();
  return piece;
}

}  // namespace situ
