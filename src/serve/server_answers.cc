// From the body of a call to the requests of its answer.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "pipelines/llm.h"
#include "serve/body_limits.h"
#include "serve/json_body.h"
#include "serve/media_bytes.h"
#include "serve/requests.h"
#include "serve/server.h"

namespace situ::serve {

const Refusal Server::kQueueIsFull{Refusal::Kind::kBusy, "", "too many requests wait (--queue)"};
static const Refusal kNobodyWaits{Refusal::Kind::kStopping, "", "the client is gone"};  // which nobody reads

constexpr int64_t kDraftTokens = 4;  // as many as `situ run --draft` asks for

// Whether a request of this model has to wait, and as many wait as may.
bool Server::is_busy(const Hosted& hosted) {
  const auto queued = [](const Served& s) { return std::max<int64_t>(0, s.waiting - s.room()); };
  const Served& own = impl_of(*hosted.model);
  int64_t all = 0;
  for (const Hosted& h : models_.all()) all += queued(impl_of(*h.model));
  return own.waiting >= own.room() && all >= options_.queue;
}

OrRefusal<Server::Understood> Server::understand(Call& call, bool waits) {
  const Protocol& protocol = *call.protocol;
  OrRefusal<Json> parsed =
      parse_body(call.body, nullptr, [&](std::string_view key) { return protocol.has_no_effect(key); });
  if (Refusal* f = std::get_if<Refusal>(&parsed)) return std::move(*f);
  const Json& body = std::get<Json>(parsed);
  if (std::optional<Refusal> f = beyond_limits(body, options_.limits)) return std::move(*f);
  OrRefusal<std::string> name = model_of(body);
  if (Refusal* f = std::get_if<Refusal>(&name)) return std::move(*f);
  OrRefusal<Hosted*> found =
      models_.find(std::get<std::string>(name),
                   protocol.is_conversation(body) ? HostedModels::Use::kChat : HostedModels::Use::kGenerate);
  if (Refusal* f = std::get_if<Refusal>(&found)) return std::move(*f);
  Understood understood{*std::get<Hosted*>(found), {}, {}};
  Hosted& hosted = understood.hosted;
  call.model = hosted.name;
  if (waits && is_busy(hosted)) return kQueueIsFull;
  MediaFiles files = files_of(call);
  if (std::optional<Refusal> f = read_files(body, options_.limits, files)) return std::move(*f);
  if (std::optional<Refusal> f = take_texts(call, body, hosted)) return std::move(*f);
  if (call.over) return kNobodyWaits;
  OrRefusal<Ask> ask = protocol.read(body, *hosted.model, {&files, options_.strict});
  if (Refusal* f = std::get_if<Refusal>(&ask)) return std::move(*f);
  understood.ask = std::move(std::get<Ask>(ask));
  understood.ask.any_length = !waits;
  if (std::optional<Refusal> f = take_media(call, understood.ask)) return std::move(*f);
  if (call.over) return kNobodyWaits;
  OrRefusal<std::vector<Request>> requests = requests_of(understood.ask);
  if (Refusal* f = std::get_if<Refusal>(&requests)) return std::move(*f);
  understood.requests = std::move(std::get<std::vector<Request>>(requests));
  return understood;
}

void Server::answer(Call& call) {
  OrRefusal<Understood> read = understand(call, true);
  if (const Refusal* f = std::get_if<Refusal>(&read)) return refuse_call(call, *f);
  auto& [hosted, ask, requests] = std::get<Understood>(read);
  const Served& served = impl_of(*hosted.model);
  const int64_t most = options_.queue + std::min(options_.max_running, served.rows());
  if (const std::optional<Refusal> f = too_many_prompts(ask, most, "here (--max-running, --queue)"))
    return refuse_call(call, *f);
  bool lowered = false;
  for (Request& r : requests) {
    r.options.prefix_cache = options_.prefix_cache;
    r.salt = call.salt;
    lowered = lowered || (ask.priority && r.priority > call.most_priority);
    r.priority = std::min(r.priority, call.most_priority);
    if (served.draft && r.options.beams.value_or(1) == 1 && served.rows_of_one() > kDraftTokens)
      r.options.draft_tokens = kDraftTokens;
  }
  if (lowered) ask.ignored.add("priority");
  call.ignored = ask.ignored;
  OrRefusal<std::unique_ptr<Answering>> answering =
      Answering::begin(*this, call, *hosted.model, std::move(ask), std::move(requests));
  if (const Refusal* f = std::get_if<Refusal>(&answering)) return refuse_call(call, *f);
  Answering& begun = *std::get<std::unique_ptr<Answering>>(answering);
  call.answering = std::move(std::get<std::unique_ptr<Answering>>(answering));
  begun.follow();
}

void Server::count_tokens(Call& call) {
  OrRefusal<Understood> read = understand(call, false);
  if (const Refusal* f = std::get_if<Refusal>(&read)) return refuse_call(call, *f);
  const Ask& ask = std::get<Understood>(read).ask;
  call.ignored = ask.ignored;
  call.prompt_tokens = ask.prompts.at(0).tokens;
  call.finish = "stop";
  respond(call, 200, {{"input_tokens", call.prompt_tokens}});
}

}  // namespace situ::serve
