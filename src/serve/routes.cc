// What can be asked for, and the answers that need no scheduler.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "pipelines/llm.h"
#include "serve/body_limits.h"
#include "serve/embedding_answer.h"
#include "serve/json_body.h"
#include "serve/media_bytes.h"
#include "serve/openapi.h"
#include "serve/protocols/openai/openai.h"
#include "serve/requests.h"
#include "serve/server.h"
#include "serve/small_bodies.h"
#include "text/json_file.h"

namespace situ::serve {
namespace {

// Of a query "a=b&c=d"; "": there is none.
std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const size_t sign = part.find('=');
    if (part.substr(0, sign) == name && sign != std::string_view::npos) return unescaped(part.substr(sign + 1));
  }
  return "";
}

double as_number(int64_t n) { return static_cast<double>(n); }

Json model_entry(const Hosted& h) {
  const ModelKind kind = kind_of(*h.model);
  Json capabilities = Json::array();
  for (const auto& [name, has] : {std::pair{"tools", kind.tools},
                                  {"reasoning", kind.reasoning},
                                  {"vision", kind.vision},
                                  {"audio", kind.audio},
                                  {"structured_output", kind.structured_output}})
    if (has) capabilities.push_back(name);
  return {{"id", h.name},
          {"object", "model"},
          {"created", h.created},
          {"owned_by", "situ"},
          {"aliases", std::vector<std::string>(h.names.begin() + 1, h.names.end())},
          {"context_length", impl_of(*h.model).context_length},
          {"kind", kind.name},
          {"capabilities", std::move(capabilities)}};
}

// Its text; the list of its bytes where these are a part of a character.
Json piece_of(const Tokenizer& text, int64_t id) {
  const std::optional<std::string> bytes = text.bytes_of(id);
  if (!bytes) {
    const Result<std::string> alone = text.decode(std::span(&id, 1), false);
    return alone.is_ok() ? *alone : "";
  }
  if (check_utf8(*bytes, "").is_ok()) return *bytes;
  Json list = Json::array();
  for (const char c : *bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

}  // namespace

std::span<const RouteEntry> route_entries() {
  constexpr int kOpen = RouteEntry::kOpen, kAtOnce = RouteEntry::kAtOnce, kLoaded = RouteEntry::kLoaded,
                kDebug = RouteEntry::kDebug, kBelow = RouteEntry::kBelow, kEmbeds = RouteEntry::kEmbeds,
                kLong = RouteEntry::kLong, kSpare = RouteEntry::kSpare, kPrompts = RouteEntry::kPrompts,
                kShowsTokens = RouteEntry::kShowsTokens;
  static const RouteEntry entries[] = {
      {"GET", "/health/live", kOpen | kAtOnce | kSpare, &Server::live, "200: the process answers"},
      {"GET", "/health/ready", kOpen | kAtOnce | kSpare, &Server::ready,
       "200: the models are loaded and calls are taken; else 503"},
      {"GET", "/health", kOpen | kAtOnce | kSpare, &Server::ready, "The same"},
      {"GET", "/v1/models", kLoaded | kAtOnce, &Server::list_models, "The models, each once, with its other names"},
      {"GET", "/v1/models/", kLoaded | kAtOnce | kBelow, &Server::show_model, "One of them, by any of its names"},
      {"POST", "/v1/chat/completions", kLoaded | kLong | kPrompts, &Server::answer, "Answers a conversation"},
      {"POST", "/v1/completions", kLoaded | kLong | kPrompts, &Server::answer, "Continues a text"},
      {"POST", "/v1/messages", kLoaded | kLong | kPrompts, &Server::answer,
       "Answers a conversation, by the Messages API"},
      {"POST", "/v1/messages/count_tokens", kLoaded, &Server::count_tokens, "The tokens of a conversation"},
      {"POST", "/v1/embeddings", kLoaded | kEmbeds | kLong, &Server::embeddings, "Embeddings of texts"},
      {"POST", "/tokenize", kLoaded | kShowsTokens, &Server::tokenize, "Token ids of a text"},
      {"POST", "/detokenize", kLoaded, &Server::detokenize, "The text of token ids"},
      {"POST", "/apply-template", kLoaded, &Server::apply_template, "The prompt that a conversation becomes"},
      {"GET", "/metrics", kAtOnce | kSpare, &Server::show_metrics, "Counters and histograms, for Prometheus"},
      {"GET", "/openapi.json", kAtOnce, &Server::describe, "This interface"},
      {"GET", "/debug/slots", kLoaded | kDebug | kLong | kAtOnce, &Server::slots,
       "Who has which slots, as events, when that changes"},
      {"GET", "/debug/placement", kLoaded | kDebug, &Server::placement, "The page of situ inspect --html; ?model=NAME"},
  };
  return entries;
}

void Server::live(Call& call) { respond_json(call, 200, R"({"status":"ok"})"); }

void Server::ready(Call& call) {
  const char* status = stopping_ ? "stopping" : loaded_ ? "ok" : "loading";
  respond_json(call, loaded_ && !stopping_ ? 200 : 503, std::string(R"({"status":")") + status + "\"}");
}

void Server::list_models(Call& call) {
  Json list = Json::array();
  for (const Hosted& h : models_.all()) list.push_back(model_entry(h));
  respond(call, 200, {{"object", "list"}, {"data", std::move(list)}});
}

void Server::show_model(Call& call) {
  const std::string name = unescaped(std::string_view(call.path).substr(std::string_view(call.route->path).size()));
  const OrRefusal<Hosted*> found = models_.find(name, HostedModels::Use::kAny);
  if (const Refusal* f = std::get_if<Refusal>(&found)) return refuse_call(call, *f);
  respond(call, 200, model_entry(*std::get<Hosted*>(found)));
}

Hosted* Server::small_call(Call& call, Json& body, HostedModels::Use use) {
  const SmallBody& known = *small_body(call.route->path);
  OrRefusal<Json> parsed = parse_body(call.body, nullptr, [&](std::string_view key) { return !has_field(known, key); });
  if (const Refusal* f = std::get_if<Refusal>(&parsed)) return refuse_call(call, *f), nullptr;
  body = std::move(std::get<Json>(parsed));
  if (const std::optional<Refusal> f = beyond_limits(body, options_.limits)) return refuse_call(call, *f), nullptr;
  if (const std::optional<Refusal> f = check_fields(known, body, options_.strict, call.ignored))
    return refuse_call(call, *f), nullptr;
  const OrRefusal<std::string> name = model_of(body);
  if (const Refusal* f = std::get_if<Refusal>(&name)) return refuse_call(call, *f), nullptr;
  const OrRefusal<Hosted*> found = models_.find(std::get<std::string>(name), use);
  if (const Refusal* f = std::get_if<Refusal>(&found)) return refuse_call(call, *f), nullptr;
  call.model = std::get<Hosted*>(found)->name;
  if (const std::optional<Refusal> f = take_texts(call, body, *std::get<Hosted*>(found)))
    return refuse_call(call, *f), nullptr;
  return std::get<Hosted*>(found);
}

void Server::respond_small(Call& call, Json body) {
  call.ignored.tell(body);
  respond(call, 200, body);
}

void Server::tokenize(Call& call) try {
  Json body;
  const Hosted* hosted = small_call(call, body, HostedModels::Use::kText);
  if (!hosted) return;
  const Tokenizer& text = hosted->model->tokenizer();
  const std::string content = text_of(body, "content");
  const bool ends = flag_of(body, "add_special", false);
  const Result<std::vector<int64_t>> ids = text.encode(content, ends, flag_of(body, "parse_special", true));
  if (!ids.is_ok()) refuse_field("content", without_paths(*hosted->model, ids.status().message()));
  if (!flag_of(body, "with_pieces", false)) return respond_small(call, {{"tokens", *ids}});
  Json pieces = Json::array();
  for (const int64_t id : *ids) pieces.push_back({{"id", id}, {"piece", piece_of(text, id)}});
  respond_small(call, {{"tokens", std::move(pieces)}});
} catch (const Refusal& f) {
  refuse_call(call, f);
}

void Server::detokenize(Call& call) try {
  Json body;
  const Hosted* hosted = small_call(call, body, HostedModels::Use::kText);
  if (!hosted) return;
  const auto tokens = body.find("tokens");
  const auto is_id = [](const Json& id) { return id.is_number_integer() && id >= 0 && id <= INT32_MAX; };
  if (tokens == body.end() || !tokens->is_array() || !std::all_of(tokens->begin(), tokens->end(), is_id))
    refuse_field("tokens", "should be a list of token ids",
                 tokens == body.end() ? Refusal::Kind::kMissing : Refusal::Kind::kType);
  const std::vector<int64_t> ids = tokens->get<std::vector<int64_t>>();
  const int64_t vocabulary = impl_of(*hosted->model).vocabulary;
  for (const int64_t id : ids)
    if (id >= vocabulary)
      refuse_field("tokens",
                   "has id " + std::to_string(id) + ", outside the vocabulary of " + std::to_string(vocabulary));
  const Result<std::string> text = hosted->model->tokenizer().decode(ids, false);
  if (!text.is_ok()) refuse_field("tokens", without_paths(*hosted->model, text.status().message()));
  respond_small(call, {{"content", *text}});
} catch (const Refusal& f) {
  refuse_call(call, f);
}

void Server::apply_template(Call& call) try {
  Json body;
  const Hosted* hosted = small_call(call, body, HostedModels::Use::kChat);
  if (!hosted) return;
  MediaFiles files = files_of(call);
  const BodyRules rules{&files, options_.strict};
  BodyReader reader(kChat, chat_protocol().fields(), body, *hosted->model, rules);
  const Json *messages = reader.find("messages"), *variables = reader.find("chat_template_kwargs");
  if (!messages) throw Refusal{Refusal::Kind::kMissing, "messages", "messages is missing"};
  if (variables && !variables->is_object()) refuse_field("chat_template_kwargs", "should be an object");
  if (const std::optional<Refusal> f = read_files(body, options_.limits, files)) throw *f;
  reader.chat.continue_last = flag_of(body, "continue_final_message", false);
  reader.chat.add_generation_prompt = flag_of(body, "add_generation_prompt", !reader.chat.continue_last);
  if (reader.chat.continue_last && reader.chat.add_generation_prompt)
    refuse_field("continue_final_message", "and add_generation_prompt do not go together");
  if (const Json* tools = reader.find("tools")) read_tools(reader, "tools", *tools);
  std::optional<Prompt> conversation = read_messages(reader, *messages);
  if (reader.refusal) throw *reader.refusal;
  reader.ask.input = std::move(*conversation);
  reader.ask.prompt_field = "messages";
  if (const std::optional<Refusal> f = take_media(call, reader.ask)) throw *f;
  const OrRefusal<std::string> prompt = text_of(reader.ask);
  if (const Refusal* why = std::get_if<Refusal>(&prompt)) throw *why;
  for (const std::string& name : reader.ask.ignored.names()) call.ignored.add(name);
  respond_small(call, {{"prompt", std::get<std::string>(prompt)}});
} catch (const Refusal& f) {
  refuse_call(call, f);
}

void Server::embeddings(Call& call) {
  Json body;
  Hosted* const hosted = small_call(call, body, HostedModels::Use::kEmbed);
  if (!hosted) return;
  if (is_busy(*hosted)) return refuse_call(call, kQueueIsFull);
  const std::string named = std::get<std::string>(model_of(body));
  OrRefusal<EmbeddingsBody> asked = read_embeddings(body, named.empty() ? hosted->name : named, options_.strict);
  if (const Refusal* f = std::get_if<Refusal>(&asked)) return refuse_call(call, *f);
  body = nullptr;
  EmbeddingsBody& read = std::get<EmbeddingsBody>(asked);
  read.ask.options.client = call.client;
  OrRefusal<std::unique_ptr<Embedding>> begun =
      Embedding::read(*hosted->model, std::move(read.ask), [&] { return call.over || cutting_; });
  if (const Refusal* f = std::get_if<Refusal>(&begun)) return refuse_call(call, *f);
  Embedding& embedding = *std::get<std::unique_ptr<Embedding>>(begun);
  call.prompt_tokens = embedding.tokens();
  if (const std::optional<Refusal> f = embedding.go_on()) return refuse_call(call, *f);
  Client& client = *this;
  auto answer = std::make_unique<EmbeddingAnswer>(client, call, std::move(std::get<std::unique_ptr<Embedding>>(begun)),
                                                  std::move(read));
  EmbeddingAnswer& follows = *answer;
  call.answering = std::move(answer);
  follows.follow();
}

void Server::show_metrics(Call& call) {
  struct Family {
    const char *name, *type, *help;
    double (*value)(const Stats&);
  };
  static const Family families[] = {
      {"situ_requests_running", "gauge", "Requests that steps take part of.",
       [](const Stats& s) { return as_number(s.running); }},
      {"situ_requests_waiting", "gauge", "Requests that wait for slots.",
       [](const Stats& s) { return as_number(s.waiting); }},
      {"situ_slots", "gauge", "Tokens that the state has room for.", [](const Stats& s) { return as_number(s.slots); }},
      {"situ_slots_used", "gauge", "Of these, what requests have; kept prefixes do not count.",
       [](const Stats& s) { return as_number(s.slots - s.slots_free - s.slots_kept); }},
      {"situ_prompt_tokens_total", "counter", "Tokens of prompts.",
       [](const Stats& s) { return as_number(s.prompt_tokens); }},
      {"situ_cached_tokens_total", "counter", "Of these, what was kept of earlier requests.",
       [](const Stats& s) { return as_number(s.cached_tokens); }},
      {"situ_answer_tokens_total", "counter", "Tokens of answers.",
       [](const Stats& s) { return as_number(s.answer_tokens); }},
      {"situ_preemptions_total", "counter", "Requests that gave their slots up and began anew.",
       [](const Stats& s) { return as_number(s.preemptions); }},
      {"situ_bytes_copied_total", "counter", "Bytes that existed elsewhere.",
       [](const Stats& s) { return as_number(s.bytes_copied); }},
      {"situ_steps_alone_total", "counter", "Steps that one thread did alone, since others have the processors.",
       [](const Stats& s) { return as_number(s.steps_alone); }},
  };
  std::vector<std::pair<std::string, Stats>> stats;
  std::vector<std::pair<std::string, double>> loaded;
  for (const Hosted& h : models_.all()) {
    const std::string label = Metrics::model_label(h.name);
    loaded.emplace_back(label, loaded_ ? 1 : 0);
    if (loaded_) stats.emplace_back(label, h.model->stats());
  }
  std::string text = metrics_.text() + Metrics::family("situ_model_loaded", "gauge", "1: it takes requests.", loaded);
  for (const Family& f : families) {
    std::vector<std::pair<std::string, double>> values;
    for (const auto& [label, s] : stats) values.emplace_back(label, f.value(s));
    text += Metrics::family(f.name, f.type, f.help, values);
  }
  respond_text(call, 200, "text/plain; version=0.0.4; charset=utf-8", text + Metrics::process());
}

void Server::describe(Call& call) { respond(call, 200, openapi()); }

void Server::placement(Call& call) {
  const OrRefusal<Hosted*> found = models_.find(query_value(call.query, "model"), HostedModels::Use::kAny);
  if (const Refusal* f = std::get_if<Refusal>(&found)) return refuse_call(call, *f);
  const Result<std::string> page = options_.placement ? options_.placement(*std::get<Hosted*>(found)->model)
                                                      : Status::error("there is no page here");
  if (!page.is_ok()) {
    const std::string why = without_paths(*std::get<Hosted*>(found)->model, page.status().message());
    return refuse_call(call, {Refusal::Kind::kByModel, "model", why});
  }
  respond_text(call, 200, "text/html; charset=utf-8", *page);
}

void Server::slots(Call& call) {
  call.watches = true;
  begin_events(call);
}

// Made of what the schedulers leave: no step waits for it. "": they have not looked yet.
std::string Server::slots_event() {
  Json models = Json::array();
  int64_t step = 0;
  for (const Hosted& h : models_.all()) {
    Model::Impl& m = impl_of(*h.model);
    const std::shared_ptr<const Picture> picture = m.scheduler->picture(m);
    if (!picture) return "";
    const Stats& s = picture->stats;
    step += s.steps;
    Json sequences = Json::array();
    for (const Picture::Holder& holder : picture->holders) {
      Json runs = Json::array();
      for (const Picture::Part& p : holder.parts) runs.push_back({p.first_slot, p.length, p.shared});
      sequences.push_back(
          {{"id", holder.request}, {"runs", std::move(runs)}, {"tokens", holder.tokens}, {"state", holder.state}});
    }
    models.push_back({{"name", h.name},
                      {"slots", s.slots},
                      {"used", s.slots - s.slots_free},
                      {"kept", s.slots_kept},
                      {"sequences", std::move(sequences)},
                      {"bytes_written", picture->bytes_written},
                      {"bytes_copied", s.bytes_copied}});
  }
  return "data: " + json_text(Json{{"step", step}, {"models", std::move(models)}}) + "\n\n";
}

}  // namespace situ::serve
