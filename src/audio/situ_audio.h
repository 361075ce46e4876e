/* The C border between Situ and the Rust library in rust/ (audio decoding, resampling, spectra).
 *
 * A function that returns int gives 0 for success, or a situ_audio_code, and then writes the reason to `error`, which
 * may be null. No call prints, exits or unwinds. A reader is used by one thread at a time; a spectrum by any number at
 * once.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct situ_audio_reader situ_audio_reader;
typedef struct situ_audio_spectrum situ_audio_spectrum;

enum situ_audio_code {
  SITU_AUDIO_BAD_FILE = 1,
  SITU_AUDIO_NOT_FOUND = 2,
  SITU_AUDIO_UNSUPPORTED = 3,
  SITU_AUDIO_ARGUMENT = 4,
  SITU_AUDIO_INTERNAL = 5,
};

/* UTF-8 with a terminator. */
typedef struct {
  char text[512];
} situ_audio_text;

typedef struct {
  situ_audio_text format;
  uint32_t rate, channels; /* of the file */
  int64_t samples;         /* that the file says it gives at the rate that was asked for; -1: it does not say */
  uint64_t bytes;          /* of the file; 0: not known */
} situ_audio_info_t;

typedef struct {
  situ_audio_text cut;  /* why the audio ended too early, or "" */
  situ_audio_text note; /* what was wrong and was put right, or "" */
  uint64_t damaged;     /* packets that could not be decoded */
  uint64_t bytes;       /* read so far */
} situ_audio_state_t;

/* path: "-" is stdin. rate: of the samples that reading gives, in Hz. */
int situ_audio_open_path(const char* path, size_t path_size, uint32_t rate, situ_audio_reader** out,
                         situ_audio_text* error);
/* The bytes must live as long as the reader. */
int situ_audio_open_bytes(const void* bytes, size_t size, uint32_t rate, situ_audio_reader** out,
                          situ_audio_text* error);
void situ_audio_free(situ_audio_reader* reader);

void situ_audio_info(const situ_audio_reader* reader, situ_audio_info_t* out);
void situ_audio_state(const situ_audio_reader* reader, situ_audio_state_t* out);

/* Writes up to `size` samples, and how many to `written`: fewer only at the end. After an error nothing can be read. */
int situ_audio_read(situ_audio_reader* reader, float* out, size_t size, size_t* written, situ_audio_text* error);

/* window: `size` weights of the samples of one frame. */
int situ_audio_spectrum_create(const double* window, size_t size, situ_audio_spectrum** out, situ_audio_text* error);
void situ_audio_spectrum_free(situ_audio_spectrum* spectrum);
/* power [frames, size / 2 + 1] = | DFT of window * samples[t hop .. t hop + size) |^2, t = 0..frames - 1. */
int situ_audio_spectrum_power(const situ_audio_spectrum* spectrum, const float* samples, size_t hop, size_t frames,
                              double* power, situ_audio_text* error);

#ifdef __cplusplus
}
#endif
