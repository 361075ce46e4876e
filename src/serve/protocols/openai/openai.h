// OpenAI's chat and completions.
#pragma once

#include "serve/body_reader.h"
#include "serve/protocol.h"

namespace situ::serve {

const Protocol& chat_protocol();
const Protocol& completions_protocol();

// -- from the body
inline constexpr int kChat = 1, kText = 2, kBoth = kChat | kText;  // BodyField::routes
std::span<const BodyField> body_fields();
// Fields of other servers without effect here, at some values or at all (peer_fields.cc).
std::span<const BodyField> peer_fields();
// A conversation, not yet read by the model. Sets the refusal.
std::optional<Prompt> read_messages(BodyReader& reader, const Json& messages);
void read_tools(BodyReader& reader, const char* name, const Json& value);
// Readers of fields that say what an answer must match (body_constraints.cc).
void read_format(BodyReader& reader, const char* name, const Json& value);
void read_schema(BodyReader& reader, const char* name, const Json& value);
void read_json_format(BodyReader& reader, const char* name, const Json& value);
void read_regex(BodyReader& reader, const char* name, const Json& value);
void read_lark(BodyReader& reader, const char* name, const Json& value);
void read_choice(BodyReader& reader, const char* name, const Json& value);
void read_structured_outputs(BodyReader& reader, const char* name, const Json& value);

// -- to bytes (answers.cc)
std::unique_ptr<Writer> stream_writer(bool chat, const Model& model, const Ask& ask, Envelope envelope);
Json whole_answer(bool chat, const Model& model, const Ask& ask, const Envelope& envelope, const WholeAnswer& answer);

}  // namespace situ::serve
