#include "serve/protocols/messages/messages.h"

#include "base/random_id.h"
#include "serve/tools.h"
#include "text/json_file.h"

namespace situ::serve {
namespace {

using Kind = Refusal::Kind;

// What several fields say together.
void settle(BodyReader& r) {
  GenerateOptions& o = r.ask.options;
  o.sample_as_files = true;
  o.end_of_turn = true;
  if (r.route == kMessages && !o.max_new_tokens)
    r.refuse("max_tokens", "max_tokens is missing: the most tokens of the answer", Kind::kMissing);
  check_choice(r);
}

int status_of(const Refusal& refusal) {
  switch (refusal.kind) {
    case Kind::kKey:
      return 401;
    case Kind::kForbidden:
      return 403;
    case Kind::kNoModel:
    case Kind::kNoPath:
      return 404;
    case Kind::kMethod:
      return 405;
    case Kind::kHost:
      return 421;
    case Kind::kHttp:
      return refusal.status == 429 ? 529 : refusal.status;
    case Kind::kBusy:
      return 529;
    case Kind::kNoRoom:
    case Kind::kLoading:
    case Kind::kStopping:
      return 503;
    case Kind::kFailed:
    case Kind::kServer:
      return 500;
    default:
      return 400;
  }
}

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 529:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string message_of(const Refusal& refusal) {
  if (refusal.kind != Kind::kContext || refusal.tokens == 0) return refusal.message;
  return "prompt is too long: " + std::to_string(refusal.tokens) + " tokens > " + std::to_string(refusal.most) +
         " maximum";
}

class Messages final : public Protocol {
 public:
  explicit Messages(int route) : route_(route) {
    for (const BodyField& f : messages_fields())
      if (f.routes & route) fields_.push_back(&f);
  }

  std::span<const BodyField* const> fields() const override { return fields_; }
  bool is_conversation(const Json&) const override { return true; }

  OrRefusal<Ask> read(const Json& body, const Model& model, const BodyRules& rules) const override {
    BodyReader r(route_, fields_, body, model, rules);
    r.ask.prompt_field = "messages";
    r.ask.shows_reasoning = false;
    r.read_fields();
    if (!r.refusal) settle(r);
    if (!r.refusal)
      if (std::optional<Prompt> conversation = read_turns(r)) r.ask.input = std::move(*conversation);
    if (r.refusal) return std::move(*r.refusal);
    return std::move(r.ask);
  }

  std::string new_id() const override { return random_id("msg_"); }

  std::unique_ptr<Writer> writer(const Model&, const Ask& ask, Envelope envelope) const override {
    return message_writer(ask, std::move(envelope), *this);
  }

  Json whole(const Model&, const Ask& ask, const Envelope& envelope, const WholeAnswer& answer) const override {
    return whole_message(ask, envelope, answer);
  }

  ErrorText error(const Refusal& refusal, const std::string& request_id) const override {
    const int status = status_of(refusal);
    const std::string id = request_id.empty() ? "null" : json_text(Json(request_id));
    return {status, std::string(R"({"type":"error","error":{"type":")") + type_of(status) + R"(","message":)" +
                        json_text(Json(message_of(refusal))) + R"(},"request_id":)" + id + "}"};
  }
  const char* error_schema() const override {
    return R"({"type": "object", "required": ["type", "error", "request_id"], "properties": {
      "type": {"const": "error"}, "request_id": {"type": ["string", "null"]}, "error": {
        "type": "object", "required": ["type", "message"], "properties": {
          "type": {"type": "string"}, "message": {"type": "string"}}}}})";
  }

  const char* ping() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }
  int64_t ping_seconds(int64_t wanted) const override {
    constexpr int64_t kMost = 10;
    return std::min(wanted, kMost);
  }
  const char* request_id_header() const override { return "request-id"; }

 private:
  const int route_;
  std::vector<const BodyField*> fields_;
};

}  // namespace

const Protocol& messages_protocol() {
  static const Messages protocol(kMessages);
  return protocol;
}

const Protocol& count_tokens_protocol() {
  static const Messages protocol(kCountTokens);
  return protocol;
}

}  // namespace situ::serve
