// OpenAI's embeddings: from the body of a call to the body of its answer.
#pragma once

#include <functional>

#include "serve/json_body.h"

namespace situ::serve {

inline constexpr const char* kEmbeddingsUrl = "/v1/embeddings";

// The answer: {object, data, model, usage}; `situ.cut` has the numbers of inputs that were longer than the model takes.
// Texts are computed a few at a time, so that other requests of the model go on between them. `model_name`: as the
// answer has it. `client`: EmbedOptions::client. `stopped`: asked between them; true: the answer is not wanted any
// more. Null: it never is. `tokens`: of all inputs, as far as they were computed. `strict`: BodyRules::strict.
OrRefusal<Json> answer_embeddings(Model& model, const Json& body, const std::string& model_name, bool strict,
                                  int64_t* tokens, const std::string& client = {},
                                  const std::function<bool()>& stopped = nullptr);

}  // namespace situ::serve
