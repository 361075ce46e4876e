#include "serve/embeddings.h"

#include "serve/requests.h"

namespace situ::serve {
namespace {

// What is computed in one go: other requests of the model wait for so much.
constexpr size_t kTextsAtOnce = 32, kBytesAtOnce = 2048;

size_t size_of(const TextPrompt& input) {
  const auto* const text = std::get_if<std::string>(&input);
  return text ? text->size() : 4 * std::get<std::vector<int64_t>>(input).size();
}

Result<Embeddings> embed_some(Model& model, const EmbedAsk& ask, size_t first, size_t count) {
  std::vector<std::string> texts;
  std::vector<std::vector<int64_t>> ids;
  for (size_t i = first; i < first + count; ++i) {
    if (const auto* const text = std::get_if<std::string>(&ask.inputs[i]))
      texts.push_back(*text);
    else
      ids.push_back(std::get<std::vector<int64_t>>(ask.inputs[i]));
  }
  return ids.empty() ? model.embed(texts, ask.options) : model.embed(ids, ask.options);
}

Refusal refusal_at(Model& model, const Status& status, size_t number) {
  using Kind = Refusal::Kind;
  std::string message = without_paths(model, status.message());
  for (const char* own : {"text 1: ", "text 1 "})  // of those that were computed together
    if (message.starts_with(own)) message = message.substr(std::string_view(own).size());
  switch (status.code()) {
    case Code::kUnsupportedModel:
      return {Kind::kByModel, "model", message};
    case Code::kContextExceeded:
      return {Kind::kContext, "input", "input[" + std::to_string(number) + "]: " + message};
    case Code::kInvalidArgument:
    case Code::kNotFound:
      if (status.option() == "dimensions") return {Kind::kUnsupported, "dimensions", message};  // sizes there are not
      if (!status.option().empty()) return {Kind::kInvalid, status.option(), message};
      return {Kind::kInvalid, "input", "input[" + std::to_string(number) + "]: " + message};
    case Code::kNoRoom:
      return {Kind::kNoRoom, "", message};
    case Code::kBusy:
      return {Kind::kBusy, "", message};
    default:
      return {Kind::kFailed, "", message};
  }
}

}  // namespace

OrRefusal<Embedded> embed(Model& model, const EmbedAsk& ask, int64_t* tokens, const std::function<bool()>& stopped) {
  Embedded all;
  *tokens = 0;
  for (size_t first = 0, count = 0; first < ask.inputs.size(); first += count) {
    if (stopped && stopped()) return Refusal{Refusal::Kind::kStopping, "", "the server is stopping"};
    size_t bytes = 0;
    for (count = 0; first + count < ask.inputs.size() && count < kTextsAtOnce; ++count) {
      bytes += size_of(ask.inputs[first + count]);
      if (count > 0 && bytes > kBytesAtOnce) break;
    }
    Result<Embeddings> made = embed_some(model, ask, first, count);
    if (!made.is_ok() && count > 1) {  // which one it is
      count = 1;
      made = embed_some(model, ask, first, count);
    }
    if (!made.is_ok()) return refusal_at(model, made.status(), first);
    for (size_t i = 0; i < count; ++i) {
      all.rows.push_back(std::move(made->rows[i]));
      *tokens += made->tokens[i];
    }
    for (const size_t i : made->cut) all.cut.push_back(first + i);
  }
  all.tokens = *tokens;
  return all;
}

}  // namespace situ::serve
