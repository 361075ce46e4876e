#include "serve/protocols/openai/errors.h"

#include <nlohmann/json.hpp>

#include "text/json_file.h"

namespace situ::serve {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Refusal::Kind;

struct Row {
  Kind kind;
  ErrorWords words;
};
constexpr const char *kRequest = "invalid_request_error", *kServerError = "server_error";
constexpr Row kRows[] = {
    {Kind::kInvalid, {400, kRequest, "invalid_value"}},
    {Kind::kType, {400, kRequest, "invalid_type"}},
    {Kind::kMissing, {400, kRequest, "missing_required_parameter"}},
    {Kind::kUnknown, {400, kRequest, "unknown_parameter"}},
    {Kind::kUnsupported, {400, kRequest, "unsupported_parameter"}},
    {Kind::kByModel, {400, kRequest, "unsupported_by_model"}},
    {Kind::kLimit, {400, kRequest, "limit_exceeded"}},
    {Kind::kNoJson, {400, kRequest, "invalid_json"}},
    {Kind::kEmpty, {400, kRequest, "empty_body"}},
    {Kind::kContext, {400, kRequest, "context_length_exceeded"}},
    {Kind::kNoModel, {404, kRequest, "model_not_found"}},
    {Kind::kWhichModel, {400, kRequest, "missing_required_parameter"}},
    {Kind::kNoPath, {404, kRequest, "unknown_url"}},
    {Kind::kMethod, {405, kRequest, "method_not_allowed"}},
    {Kind::kKey, {401, kRequest, "invalid_api_key"}},
    {Kind::kForbidden, {403, kRequest, ""}},
    {Kind::kHost, {421, kRequest, ""}},
    {Kind::kBusy, {429, "rate_limit_exceeded", "rate_limit_exceeded"}},
    {Kind::kNoRoom, {503, kServerError, "overloaded"}},
    {Kind::kLoading, {503, kServerError, "loading"}},
    {Kind::kStopping, {503, kServerError, "stopping"}},
    {Kind::kFailed, {500, kServerError, "model_failed"}},
    {Kind::kServer, {500, kServerError, ""}},
    {Kind::kDuplicate, {400, kRequest, "duplicate_custom_id"}},
};

}  // namespace

ErrorWords words_of(const Refusal& refusal) {
  for (const Row& row : kRows)
    if (row.kind == refusal.kind) return row.words;
  if (refusal.status == 429) return words_of({.kind = Kind::kBusy});
  return {refusal.status, refusal.status >= 500 ? kServerError : kRequest, ""};
}

// In pieces: what destroys lists and objects takes memory, and ends the process where there is none.
std::string text_of(const Refusal& refusal) {
  const auto text = [](const std::string& s) { return s.empty() ? "null" : json_text(Json(s)); };
  const ErrorWords words = words_of(refusal);
  return R"({"error":{"message":)" + json_text(Json(refusal.message)) + R"(,"type":)" + text(words.type) +
         R"(,"param":)" + text(refusal.option) + R"(,"code":)" + text(words.code) + "}}";
}

Json to_json(const Refusal& refusal) { return Json::parse(text_of(refusal)); }

}  // namespace situ::serve
