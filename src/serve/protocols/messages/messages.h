// The Messages API: /v1/messages and /v1/messages/count_tokens.
#pragma once

#include "serve/body_reader.h"
#include "serve/protocol.h"

namespace situ::serve {

const Protocol& messages_protocol();
// Of the path that counts the tokens of a body: its answers are no messages.
const Protocol& count_tokens_protocol();

// -- from the body
inline constexpr int kMessages = 1, kCountTokens = 2;  // BodyField::routes
std::span<const BodyField> messages_fields();
// A conversation, not yet read by the model. Sets the refusal.
std::optional<Prompt> read_turns(BodyReader& reader);

// -- to bytes (answers.cc)
std::unique_ptr<Writer> message_writer(const Ask& ask, Envelope envelope, const Protocol& protocol);
Json whole_message(const Ask& ask, const Envelope& envelope, const WholeAnswer& answer);

}  // namespace situ::serve
