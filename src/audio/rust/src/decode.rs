//! The packets of a file as mono samples at the file's rate, by symphonia and libopus.

use crate::ffi::{bad_file, unsupported, Code, Error};
use crate::input::{Input, Progress};
use crate::ogg::{Pages, Problems};
use crate::opus;
use crate::sniff::{format_of, is_mp3_frame, unknown, Format, CONVERT};
use crate::vorbis;
use crate::wav;
use std::io::ErrorKind::UnexpectedEof;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_FLAC, CODEC_ID_OPUS, CODEC_ID_VORBIS};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as Failure;
use symphonia::core::formats::{FormatOptions, FormatReader, Track};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::packet::Packet;
use symphonia::default::formats::{FlacReader, MpaReader, OggReader, WavReader};

pub const RATES: RangeInclusive<u32> = 1_000..=384_000;
const MOST_CHANNELS: usize = 32;
/// No recording is as loud: what is beyond is not audio, and its powers would overflow.
const LOUDEST: f32 = 1e9;
/// One after the other. A reader that stays where it is would give them for ever.
const MOST_DAMAGED: u32 = 1_000;
/// One after the other: fewer are taken for damaged frames.
const MOST_OTHER_RATE: u32 = 50;
/// Silence in the place of a damaged packet, at most.
const MOST_SILENCE: u64 = 8_192;

enum Codec {
    Known(Box<dyn AudioDecoder>),
    Opus(opus::Decoder),
}

pub struct Decoder {
    reader: Box<dyn FormatReader>,
    progress: Arc<Progress>,
    format: Format,
    codec: Codec,
    track: u32,
    pub name: &'static str,
    pub rate: u32,
    pub channels: usize,
    /// Frames that the file says it has, delay and padding not counted.
    pub expected: Option<u64>,
    /// Of an mp3: frames with delay and padding. What comes after them is another file that was appended.
    whole: Option<u64>,
    /// Frames at the start that are left out still: Opus.
    skip: usize,
    /// Given so far, and decoded so far with delay and padding.
    pub frames: u64,
    decoded: u64,
    packet_bytes: u64,
    start: u64,
    /// Bytes in front of the first frame of an mp3.
    junk: u64,
    /// Of Ogg's pages.
    problems: Arc<Problems>,
    good: u64,
    pub damaged: u64,
    damaged_in_a_row: u32,
    other_rate_in_a_row: u32,
    planes: Vec<Vec<f32>>,
    /// Why the audio ended too early; empty at its end.
    pub cut: String,
    ended: bool,
}

/// What symphonia says of a file that it cannot open.
fn refusal(failure: Failure, format: Format) -> Error {
    let text = match failure {
        Failure::IoError(e) if e.kind() == UnexpectedEof && format == Format::Ogg => {
            "is cut off in its header, or has no Vorbis, Opus or flac".into()
        }
        Failure::IoError(e) if e.kind() == UnexpectedEof => "is cut off in its header".into(),
        Failure::IoError(e) => format!("cannot be read: {e}"),
        Failure::Unsupported(what) => return Error { code: Code::Unsupported, text: format!("{what}{CONVERT}") },
        Failure::DecodeError(what) => format!("is damaged: {what}"),
        other => format!("is damaged: {other}"),
    };
    Error { code: Code::BadFile, text }
}

pub fn check_sizes(rate: u32, channels: usize) -> Result<(), Error> {
    if !RATES.contains(&rate) {
        return bad_file(format!("has a rate of {rate} Hz; {} to {} Hz are read", RATES.start(), RATES.end()));
    }
    if !(1..=MOST_CHANNELS).contains(&channels) {
        return bad_file(format!("has {channels} channels; 1 to {MOST_CHANNELS} are read"));
    }
    Ok(())
}

fn audio_of(track: &Track) -> Option<&AudioCodecParameters> {
    track.codec_params.as_ref()?.audio()
}

impl Decoder {
    pub fn new(mut input: Input) -> Result<Decoder, Error> {
        let head = input.begin()?;
        let known = format_of(&head, input.start)?;
        let before = input.start;
        let format = match known {
            Some(format) => format,
            None if input.skip_to_mp3()? => Format::Mp3,
            None => return unknown(&head),
        };
        let junk = input.start - before;
        if format == Format::Wav {
            wav::rewrite_header(&mut input)?;
        }
        let (progress, start, problems) = (input.progress.clone(), input.start, Arc::<Problems>::default());
        let source: Box<dyn MediaSource> = match format {
            Format::Ogg => Box::new(Pages::new(input, problems.clone())),
            _ => Box::new(input),
        };
        let stream = MediaSourceStream::new(source, Default::default());
        let options = FormatOptions::default();
        let reader: Result<Box<dyn FormatReader>, Failure> = match format {
            Format::Wav => WavReader::try_new(stream, options).map(|reader| Box::new(reader) as _),
            Format::Flac => FlacReader::try_new(stream, options).map(|reader| Box::new(reader) as _),
            Format::Mp3 => MpaReader::try_new(stream, options).map(|reader| Box::new(reader) as _),
            Format::Ogg => OggReader::try_new(stream, options).map(|reader| Box::new(reader) as _),
        };
        let reader = reader.map_err(|failure| refusal(failure, format))?;
        let (track, codec, audio) = Self::codec_of(&*reader, format)?;
        let rate = audio.sample_rate.unwrap_or(0);
        let channels = audio.channels.as_ref().map_or(0, |channels| channels.count());
        check_sizes(rate, channels)?;
        let name = match (format, audio.codec) {
            (Format::Wav, _) => "wav",
            (Format::Flac, _) => "flac",
            (Format::Mp3, _) => "mp3",
            (_, CODEC_ID_VORBIS) => "ogg vorbis",
            (_, CODEC_ID_FLAC) => "ogg flac",
            _ => "ogg opus",
        };
        let delay = track.delay.unwrap_or(0);
        let expected = track.num_frames.filter(|frames| *frames > 0 && format != Format::Ogg);
        let whole = expected.filter(|_| format == Format::Mp3);
        let whole = whole.map(|frames| frames + u64::from(delay) + u64::from(track.padding.unwrap_or(0)));
        let skip = if matches!(codec, Codec::Opus(_)) { delay as usize } else { 0 };
        let track = track.id;
        Ok(Decoder {
            progress,
            format,
            codec,
            track,
            name,
            rate,
            channels,
            expected,
            whole,
            skip,
            start,
            junk,
            problems,
            reader,
            frames: 0,
            decoded: 0,
            packet_bytes: 0,
            good: 0,
            damaged: 0,
            damaged_in_a_row: 0,
            other_rate_in_a_row: 0,
            planes: Vec::new(),
            cut: String::new(),
            ended: false,
        })
    }

    /// The first track that can be decoded.
    fn codec_of(reader: &dyn FormatReader, format: Format) -> Result<(Track, Codec, AudioCodecParameters), Error> {
        // An mp3's delay and padding are cut here (`trim`), since frames beyond them may be those of another file.
        let options = AudioDecoderOptions::default().gapless(format != Format::Mp3);
        for track in reader.tracks() {
            let Some(audio) = audio_of(track) else { continue };
            let channels = audio.channels.as_ref().map_or(0, |channels| channels.count());
            check_sizes(audio.sample_rate.unwrap_or(0), channels)?;
            let codec = if audio.codec == CODEC_ID_OPUS {
                Codec::Opus(opus::Decoder::new(audio.extra_data.as_deref().unwrap_or_default())?)
            } else {
                if audio.codec == CODEC_ID_VORBIS {
                    vorbis::check(audio.extra_data.as_deref().unwrap_or_default())?;
                }
                match symphonia::default::get_codecs().make_audio_decoder(audio, &options) {
                    Ok(decoder) => Codec::Known(decoder),
                    Err(Failure::Unsupported(_)) => continue,
                    Err(failure) => return Err(refusal(failure, format)),
                }
            };
            return Ok((track.clone(), codec, audio.clone()));
        }
        unsupported(format!("has no audio in a known encoding{CONVERT}"))
    }

    fn seconds(&self, frames: u64) -> f64 {
        frames as f64 / f64::from(self.rate)
    }

    /// Appends mono samples of the next packet to `out`. False: the end, and nothing was appended.
    pub fn next(&mut self, out: &mut Vec<f32>) -> Result<bool, Error> {
        while !self.ended {
            match self.reader.next_packet() {
                Ok(Some(packet)) if packet.track_id != self.track => {}
                Ok(Some(packet)) => {
                    let before = out.len();
                    self.decode(&packet, out)?;
                    self.frames += (out.len() - before) as u64;
                    if out.len() > before {
                        return Ok(true);
                    }
                }
                Ok(None) => self.end(false, "")?,
                Err(Failure::ResetRequired) => self.restart()?,
                // A wav that was written to a pipe does not say where it ends.
                Err(Failure::IoError(e)) if e.kind() == UnexpectedEof => self.end(self.format != Format::Wav, "")?,
                Err(Failure::IoError(e)) => self.end(true, &format!(": {e}"))?,
                Err(_) => self.count_damaged()?,
            }
        }
        Ok(false)
    }

    /// What the caller may want to know of the file, so far; or nothing.
    pub fn note(&self) -> String {
        let positions = self.problems.positions.load(Ordering::Relaxed);
        let missing = self.problems.missing.load(Ordering::Relaxed);
        let mut notes = Vec::new();
        if self.junk > 0 {
            notes.push(format!("{} bytes in front of the first mp3 frame are no audio and were left out", self.junk));
        }
        if positions > 0 {
            notes.push(format!(
                "pages that say a wrong number of samples: {positions}; all samples that are there were read"
            ));
        }
        if missing > 0 {
            notes.push(format!("pages that are missing or damaged, and were left out: {missing}"));
        }
        notes.join("; ")
    }

    fn count_damaged(&mut self) -> Result<(), Error> {
        self.damaged += 1;
        self.damaged_in_a_row += 1;
        if self.damaged_in_a_row > MOST_DAMAGED {
            self.end(true, ": the rest is damaged")?;
        }
        Ok(())
    }

    fn decode(&mut self, packet: &Packet, out: &mut Vec<f32>) -> Result<(), Error> {
        self.packet_bytes += packet.data.len() as u64;
        let decoded = match &mut self.codec {
            Codec::Opus(decoder) => decoder.decode(&packet.data).map(|samples| {
                self.planes.resize(self.channels, Vec::new());
                for (c, plane) in self.planes.iter_mut().enumerate() {
                    plane.clear();
                    plane.extend(samples.iter().skip(c).step_by(self.channels));
                }
                self.rate
            }),
            Codec::Known(decoder) => decoder.decode(packet).ok().map(|buffer| {
                buffer.copy_to_vecs_planar(&mut self.planes);
                buffer.spec().rate()
            }),
        };
        match decoded {
            Some(rate) if rate == self.rate => {
                self.good += 1;
                self.damaged_in_a_row = 0;
                self.other_rate_in_a_row = 0;
            }
            Some(rate) => {
                self.other_rate_in_a_row += 1;
                if self.other_rate_in_a_row > MOST_OTHER_RATE {
                    return self.other_rate(rate);
                }
                return self.count_damaged();
            }
            None => {
                // Silence keeps the time of what follows.
                let silence = packet.block_dur().get().min(MOST_SILENCE) as usize;
                self.planes.resize(1, Vec::new());
                self.planes.truncate(1);
                self.planes[0].clear();
                self.planes[0].resize(silence, 0.0);
                self.count_damaged()?;
            }
        }
        let frames = self.planes.iter().map(Vec::len).min().unwrap_or(0);
        let (from, to) = self.trim(packet, frames);
        self.mix(from, to, out)
    }

    /// The frames [from, to) of a packet that are no delay and no padding.
    fn trim(&mut self, packet: &Packet, frames: usize) -> (usize, usize) {
        self.decoded += frames as u64;
        let clamped = |duration: u64| usize::try_from(duration).unwrap_or(usize::MAX).min(frames);
        let (mut from, mut end) = (0, 0);
        if let Codec::Opus(_) = self.codec {
            from = self.skip.min(frames);
            self.skip -= from;
            end = clamped(packet.trim_end.get());
        } else if self.whole.is_some_and(|whole| self.decoded <= whole) {
            from = clamped(packet.trim_start.get());
            end = clamped(packet.trim_end.get());
        }
        (from, (frames - end).max(from))
    }

    /// Appends the mean of all channels.
    fn mix(&mut self, from: usize, to: usize, out: &mut Vec<f32>) -> Result<(), Error> {
        for (c, plane) in self.planes.iter().enumerate() {
            // A NaN is in no range.
            if let Some(at) = plane[from..to].iter().position(|sample| !(-LOUDEST..=LOUDEST).contains(sample)) {
                let (frame, value) = (self.frames + at as u64, plane[from + at]);
                return bad_file(format!("sample {frame} of channel {c} is {value}, which is no audio"));
            }
        }
        let Some((first, others)) = self.planes.split_first() else { return Ok(()) };
        let start = out.len();
        out.extend_from_slice(&first[from..to]);
        for plane in others {
            for (sum, sample) in out[start..].iter_mut().zip(&plane[from..to]) {
                *sum += sample;
            }
        }
        if !others.is_empty() {
            let channels = self.planes.len() as f32;
            out[start..].iter_mut().for_each(|sum| *sum /= channels);
        }
        Ok(())
    }

    fn other_rate(&self, rate: u32) -> Result<(), Error> {
        let (at, old) = (self.seconds(self.frames), self.rate);
        bad_file(format!("changes its rate from {old} to {rate} Hz after {at:.2} s{CONVERT}"))
    }

    /// The next of several Ogg streams in a row.
    fn restart(&mut self) -> Result<(), Error> {
        let (track, codec, audio) = Self::codec_of(&*self.reader, self.format)?;
        let rate = audio.sample_rate.unwrap_or(0);
        if rate != self.rate {
            return self.other_rate(rate);
        }
        self.channels = audio.channels.as_ref().map_or(0, |channels| channels.count());
        self.skip = if matches!(codec, Codec::Opus(_)) { track.delay.unwrap_or(0) as usize } else { 0 };
        self.track = track.id;
        self.codec = codec;
        // Of the streams before.
        self.reader.metadata().skip_to_latest();
        Ok(())
    }

    /// The end of the packets. early: something is missing for certain; why: appended to what is said of it.
    fn end(&mut self, early: bool, why: &str) -> Result<(), Error> {
        self.ended = true;
        if self.good == 0 || self.frames == 0 {
            return bad_file(match (self.damaged, early) {
                (0, false) => "has no audio samples".into(),
                (0, true) => format!("is cut off before its first sample{why}"),
                _ => "is damaged: nothing of it can be decoded".to_string(),
            });
        }
        let at = self.seconds(self.frames);
        match self.expected {
            Some(expected) if self.frames < expected => {
                let all = self.seconds(expected);
                self.cut = format!("is cut off or damaged: {at:.2} s of {all:.2} s were read{why}");
            }
            _ if early || self.has_part_of_a_frame() => self.cut = format!("is cut off after {at:.2} s{why}"),
            _ => {}
        }
        Ok(())
    }

    /// Whether an mp3 that does not say how long it is ends within a frame.
    fn has_part_of_a_frame(&self) -> bool {
        let bytes = self.progress.bytes.load(Ordering::Relaxed);
        let rest = bytes.saturating_sub(self.start + self.packet_bytes) as usize;
        let part = self.progress.tail(rest);
        self.format == Format::Mp3 && self.expected.is_none() && !part.is_empty() && is_mp3_frame(&part)
    }
}
