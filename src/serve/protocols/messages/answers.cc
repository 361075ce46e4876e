// Messages, whole and as events.
#include <nlohmann/json.hpp>

#include "base/random_id.h"
#include "serve/protocols/messages/messages.h"
#include "text/json_file.h"

namespace situ::serve {
namespace {

const char* stop_reason(FinishReason reason, bool calls) {
  switch (reason) {
    case FinishReason::kStop:
      return calls ? "tool_use" : "end_turn";
    case FinishReason::kStopString:
      return "stop_sequence";
    default:
      return "max_tokens";
  }
}

// The tokens of a kept prefix count apart from the others of the prompt.
Json usage_json(const Usage& u) {
  return {{"input_tokens", u.prompt - u.cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", u.cached},
          {"output_tokens", u.answer}};
}

Json message_json(const Envelope& envelope, Json content, const Usage& usage) {
  Json message = {{"id", envelope.id},
                  {"type", "message"},
                  {"role", "assistant"},
                  {"model", envelope.model},
                  {"content", std::move(content)},
                  {"stop_reason", nullptr},
                  {"stop_sequence", nullptr},
                  {"usage", usage_json(usage)}};
  if (envelope.request) message["situ"] = {{"request", *envelope.request}};
  return message;
}

Json ends(const Ended& end, bool calls) {
  return {{"stop_reason", stop_reason(end.reason, calls)},
          {"stop_sequence", end.stop_string.empty() ? Json() : Json(end.stop_string)}};
}

Json thinking_block(const std::string& text) { return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}}; }
Json text_block(const std::string& text) { return {{"type", "text"}, {"text", text}}; }
Json call_block(const std::string& name, Json input) {
  return {{"type", "tool_use"}, {"id", random_id("toolu_")}, {"name", name}, {"input", std::move(input)}};
}

// Blocks are told one after the other: each ends before the next one begins.
class MessageWriter final : public Writer {
 public:
  MessageWriter(const Ask& ask, Envelope envelope, const Protocol& protocol)
      : ask_(ask), envelope_(std::move(envelope)), protocol_(protocol) {}

  void open(std::vector<Piece>& pieces) override {
    Usage usage;
    for (const Ask::Asked& prompt : ask_.prompts) usage.prompt += prompt.tokens;
    send("message_start", {{"message", message_json(envelope_, Json::array(), usage)}}, pieces);
  }

  void put(const Out& out, std::vector<Piece>& pieces) override {
    std::visit([&](const auto& what) { write(what, pieces); }, out.what);
  }

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  static void send(const char* type, const Json& more, std::vector<Piece>& pieces) {
    Json event = {{"type", type}};
    event.update(more);
    pieces.push_back({type, json_text(event)});
  }
  void begin(Block block, const Json& content, std::vector<Piece>& pieces) {
    close(pieces);
    open_ = block;
    send("content_block_start", {{"index", index_}, {"content_block", content}}, pieces);
  }
  void delta(const char* type, const char* key, const std::string& text, std::vector<Piece>& pieces) const {
    send("content_block_delta", {{"index", index_}, {"delta", {{"type", type}, {key, text}}}}, pieces);
  }
  void close(std::vector<Piece>& pieces) {
    if (open_ == Block::kNone) return;
    if (open_ == Block::kThinking) delta("signature_delta", "signature", "", pieces);
    send("content_block_stop", {{"index", index_}}, pieces);
    open_ = Block::kNone;
    ++index_;
  }

  void write(const Begun&, std::vector<Piece>&) {}
  void write(const ReasoningPiece& piece, std::vector<Piece>& pieces) {
    if (!ask_.shows_reasoning || piece.text.empty()) return;
    if (open_ != Block::kThinking) begin(Block::kThinking, thinking_block(""), pieces);
    delta("thinking_delta", "thinking", piece.text, pieces);
  }
  void write(const TextPiece& piece, std::vector<Piece>& pieces) {
    if (piece.text.empty()) return;
    if (open_ != Block::kText) begin(Block::kText, text_block(""), pieces);
    delta("text_delta", "text", piece.text, pieces);
  }
  void write(const CallBegun& call, std::vector<Piece>& pieces) {
    begin(Block::kCall, call_block(call.name, Json::object()), pieces);
  }
  void write(const ArgumentsPiece& piece, std::vector<Piece>& pieces) {
    if (!piece.json.empty()) delta("input_json_delta", "partial_json", piece.json, pieces);
  }
  void write(const CallEnded&, std::vector<Piece>& pieces) {
    calls_ = true;
    close(pieces);
  }
  void write(const Ended& end, std::vector<Piece>& pieces) {
    end_ = end;
    if (open_ != Block::kCall) close(pieces);  // a call that was cut stays open
  }
  void write(const Finished& finished, std::vector<Piece>& pieces) {
    send("message_delta", {{"delta", ends(end_, calls_)}, {"usage", usage_json(finished.usage)}}, pieces);
    send("message_stop", Json::object(), pieces);
  }
  void write(const Refusal& refusal, std::vector<Piece>& pieces) {
    pieces.push_back({"error", protocol_.error(refusal, envelope_.request_id).json});
  }

  const Ask& ask_;
  const Envelope envelope_;
  const Protocol& protocol_;
  Block open_ = Block::kNone;
  size_t index_ = 0;
  bool calls_ = false;  // one has ended
  Ended end_;
};

}  // namespace

std::unique_ptr<Writer> message_writer(const Ask& ask, Envelope envelope, const Protocol& protocol) {
  return std::make_unique<MessageWriter>(ask, std::move(envelope), protocol);
}

Json whole_message(const Ask& ask, const Envelope& envelope, const WholeAnswer& answer) {
  Json content = Json::array();
  const WholeAnswer::Choice& c = answer.choices.at(0);
  if (ask.shows_reasoning && !c.reasoning.empty()) content.push_back(thinking_block(c.reasoning));
  if (!c.text.empty()) content.push_back(text_block(c.text));
  bool calls = false;
  for (const WholeAnswer::Call& call : c.calls) {
    if (!call.ended) continue;
    calls = true;
    content.push_back(call_block(call.name, Json::parse(call.arguments_json)));
  }
  Json message = message_json(envelope, std::move(content), answer.finished.usage);
  message.update(ends(c.end, calls));
  ask.ignored.tell(message);
  return message;
}

}  // namespace situ::serve
