// OpenAI's embeddings: from the body of a call to the body of its answer.
#pragma once

#include <string>

#include "serve/embeddings.h"
#include "serve/json_body.h"
#include "situ/model.h"

namespace situ::serve {

inline constexpr const char* kEmbeddingsUrl = "/v1/embeddings";

struct EmbeddingsBody {
  EmbedAsk ask;
  bool base64 = false;
  std::string model_name;  // as the answer has it
  Ignored ignored;
};
// `strict`: BodyRules::strict.
OrRefusal<EmbeddingsBody> read_embeddings(const Json& body, const std::string& model_name, bool strict);

// The answer's text: {object, data, model, usage}; `situ.cut` has the numbers of inputs that were longer than the model
// takes.
class EmbeddingsText {
 public:
  EmbeddingsText(Embedded made, const EmbeddingsBody& body);
  // Writes some. False: all are written.
  bool add_rows();
  std::string take() { return std::move(text_) + end_; }

 private:
  const bool base64_;
  Embedded made_;
  size_t next_ = 0;
  std::string text_, end_;
};

// The same for who waits. `tokens`: of all inputs, once they are read.
OrRefusal<Json> answer_embeddings(Model& model, const Json& body, const std::string& model_name, bool strict,
                                  int64_t* tokens);

}  // namespace situ::serve
