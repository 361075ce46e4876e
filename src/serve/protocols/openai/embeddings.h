// OpenAI's embeddings: from the body of a call to the body of its answer.
#pragma once

#include <functional>

#include "serve/json_body.h"
#include "situ/model.h"

namespace situ::serve {

inline constexpr const char* kEmbeddingsUrl = "/v1/embeddings";

// The answer: {object, data, model, usage}; `situ.cut` has the numbers of inputs that were longer than the model takes.
// `model_name`: as the answer has it. `strict`: BodyRules::strict. The others: see embed().
OrRefusal<Json> answer_embeddings(Model& model, const Json& body, const std::string& model_name, bool strict,
                                  int64_t* tokens, const std::string& client = {},
                                  const std::function<bool()>& stopped = nullptr);

}  // namespace situ::serve
