//! Markdown that grows: a text is cut into blocks, and more text at its end changes at most the last two.
//!
//! A block is what stands between blank lines (a list stays together, long code is cut into pieces of some dozen lines).
//! Each is parsed and laid out by itself and keeps its height, so an answer of hundreds of thousands of characters costs
//! what is visible of it. The cut is a plain scan over lines; `pulldown-cmark` does the parsing.

pub mod draw;
mod math;
pub mod parse;

use parse::Node;
use std::ops::Range;
use std::rc::Rc;

/// Bytes after which a block without a blank line in it is cut at the next line.
const LONG: usize = 4_000;
/// Bytes after which a line is cut at the next space.
const LONG_LINE: usize = 8_000;
/// Lines of code that are laid out together.
const CODE_LINES: usize = 48;

/// What a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To be parsed.
    Markdown,
    /// More rows of a table that is cut since it is long, to be parsed behind its head.
    Rows {
        /// The bytes of the head and the line below it.
        head: Range<usize>,
    },
    /// Text as it stands (a question).
    Plain,
    /// Lines of fenced code; the range of the block is theirs without the fences.
    Code {
        /// The word behind the fence.
        language: String,
        /// Which character the fence is made of, and how many.
        fence: (u8, usize),
        /// The first lines of this code.
        first: bool,
        /// The last, with the fence behind it.
        last: bool,
    },
}

/// A part of a text that is laid out by itself.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its bytes.
    pub range: Range<usize>,
    /// Where the next block's scan begins.
    next: usize,
    /// What it is.
    pub kind: Kind,
    /// Its height, and at which width (in points) it was measured.
    pub height: Option<(f32, f32)>,
    /// The same as a guess, for as long as it was not measured.
    pub guess: Option<(f32, f32)>,
    nodes: Option<Rc<Vec<Node>>>,
}

impl Block {
    fn same(&self, other: &Self) -> bool {
        self.range == other.range && self.kind == other.kind && self.next == other.next
    }
}

/// A text and its blocks.
#[derive(Clone, Debug, Default)]
pub struct Doc {
    text: String,
    blocks: Vec<Block>,
    plain: bool,
}

impl Doc {
    /// Markdown.
    pub fn markdown(text: &str) -> Self {
        let mut doc = Self::default();
        doc.set(text);
        doc
    }

    /// Text as it stands.
    pub fn plain(text: &str) -> Self {
        let mut doc = Self { plain: true, ..Self::default() };
        doc.set(text);
        doc
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Its blocks, to note their heights.
    pub fn blocks_mut(&mut self) -> &mut [Block] {
        &mut self.blocks
    }

    /// The text is now this one. Blocks that stay the same keep what they know; how many did is the answer.
    pub fn set(&mut self, text: &str) -> usize {
        if text == self.text {
            return self.blocks.len();
        }
        let grown = text.len() > self.text.len() && text.as_bytes().starts_with(self.text.as_bytes());
        if grown {
            self.text.push_str(&text[self.text.len()..]);
        } else {
            text.clone_into(&mut self.text);
            self.blocks.clear();
        }
        // What is added may turn the last line into something that belongs to the block before.
        let keep = self.blocks.len().saturating_sub(2);
        let old = self.blocks.split_off(keep);
        let (from, open) = match self.blocks.last() {
            None => (0, Before::Nothing),
            Some(Block { next, kind: Kind::Code { language, fence, last: false, .. }, .. }) => {
                (*next, Before::Code(language.clone(), *fence))
            }
            Some(block) => (block.next, Before::of(&self.text, block)),
        };
        let new = if self.plain { scan_plain(&self.text, from) } else { scan(&self.text, from, open) };
        let mut kept = keep;
        for (place, block) in new.into_iter().enumerate() {
            match old.get(place).filter(|old| old.same(&block)) {
                // The last block's text may have grown within the same lines only if its range did.
                Some(old) => {
                    kept += 1;
                    self.blocks.push(old.clone());
                }
                None => self.blocks.push(block),
            }
        }
        kept
    }

    /// A block's text.
    pub fn source(&self, index: usize) -> &str {
        self.blocks.get(index).map_or("", |block| &self.text[block.range.clone()])
    }

    /// A block's parts, parsed once.
    pub fn nodes(&mut self, index: usize) -> Rc<Vec<Node>> {
        let Some(block) = self.blocks.get_mut(index) else { return Rc::default() };
        let text = &self.text;
        let source = &text[block.range.clone()];
        let parse = || match &block.kind {
            Kind::Rows { head } => parse::parse(&format!("{}{source}", &text[head.clone()])),
            _ => parse::parse(source),
        };
        block.nodes.get_or_insert_with(|| Rc::new(parse())).clone()
    }

    /// Guesses at this width how high the blocks are that were not measured yet; each once.
    pub fn guess(&mut self, width: f32, guess: impl Fn(&str) -> f32) {
        for block in &mut self.blocks {
            if block.height.is_none() && block.guess.is_none_or(|(_, at)| at != width) {
                block.guess = Some((guess(&self.text[block.range.clone()]), width));
            }
        }
    }

    /// All of the code that a block is a piece of.
    pub fn whole_code(&self, index: usize) -> &str {
        let is_code = |block: &Block| matches!(block.kind, Kind::Code { .. });
        let Some(block) = self.blocks.get(index).filter(|block| is_code(block)) else { return "" };
        let end = self.blocks[index..]
            .iter()
            .take_while(|block| is_code(block))
            .find(|block| matches!(block.kind, Kind::Code { last: true, .. }))
            .or_else(|| self.blocks.last().filter(|block| is_code(block)))
            .map_or(block.range.end, |block| block.range.end);
        &self.text[block.range.start..end]
    }
}

/// Lines with their line ends, from a place on.
fn lines(text: &str, from: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut at = from;
    text[from..].split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        (start, line)
    })
}

fn block(range: Range<usize>, next: usize, kind: Kind) -> Block {
    Block { range, next, kind, height: None, guess: None, nodes: None }
}

/// Pieces of some dozen lines each, for a question.
fn scan_plain(text: &str, from: usize) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut start = from;
    let mut count = 0;
    for (at, line) in lines(text, from) {
        count += 1;
        let end = at + line.len();
        if count >= CODE_LINES || end - start > LONG {
            blocks.push(block(start..end, end, Kind::Plain));
            (start, count) = (end, 0);
        }
    }
    if start < text.len() {
        blocks.push(block(start..text.len(), text.len(), Kind::Plain));
    }
    blocks
}

/// A fence at the start of a line: its character, how many of it, and what stands behind.
fn fence_of(line: &str) -> Option<(u8, usize, &str)> {
    let trimmed = line.trim_start_matches(' ');
    if line.len() - trimmed.len() > 3 {
        return None;
    }
    let mark = *trimmed.as_bytes().first()?;
    let length = trimmed.bytes().take_while(|byte| *byte == mark).count();
    let info = &trimmed[length..];
    let is_fence = (mark == b'`' && !info.contains('`') || mark == b'~') && length >= 3;
    is_fence.then_some((mark, length, info))
}

fn is_list_item(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = match digits {
        0 => line.strip_prefix(['-', '*', '+']),
        1..=9 => line[digits..].strip_prefix(['.', ')']),
        _ => None,
    };
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n']))
}

fn is_heading(line: &str) -> bool {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    (1..=6).contains(&level) && line[level..].starts_with([' ', '\t'])
}

/// The line below the head of a table.
fn is_delimiter(line: &str) -> bool {
    let line = line.trim();
    line.contains('-') && line.contains(['|', ':']) && line.bytes().all(|byte| b"|:- \t".contains(&byte))
}

/// The head of the table that a text begins with, and the line below it, as bytes of the text.
fn table_head(text: &str) -> Option<usize> {
    let mut lines = text.split_inclusive('\n');
    let (first, second) = (lines.next()?, lines.next()?);
    let is_table = first.contains('|') && !is_list_item(first) && is_delimiter(second);
    (is_table && second.ends_with('\n')).then_some(first.len() + second.len())
}

/// What a scan goes on with.
enum Before {
    /// Nothing: a block begins.
    Nothing,
    /// Fenced code.
    Code(String, (u8, usize)),
    /// A table with this head; its next row may follow.
    Table(Range<usize>),
}

impl Before {
    /// Behind a block of which all is known.
    fn of(text: &str, block: &Block) -> Self {
        let source = &text[block.range.clone()];
        // A blank line ends a table.
        let last = source.strip_suffix('\n').and_then(|source| source.rsplit('\n').next());
        if block.next != block.range.end || last.is_none_or(|line| line.trim().is_empty()) {
            return Self::Nothing;
        }
        let start = block.range.start;
        match &block.kind {
            Kind::Rows { head } => Self::Table(head.clone()),
            Kind::Markdown => table_head(source).map_or(Self::Nothing, |end| Self::Table(start..start + end)),
            Kind::Plain | Kind::Code { .. } => Self::Nothing,
        }
    }
}

/// The block that a scan is in.
#[derive(Default)]
struct Run {
    start: usize,
    list: bool,
    blank: bool,
    open: bool,
    /// More rows of a table with this head.
    rows_of: Option<Range<usize>>,
}

impl Run {
    fn block(&self, end: usize) -> Block {
        let kind = self.rows_of.clone().map_or(Kind::Markdown, |head| Kind::Rows { head });
        block(self.start..end, end, kind)
    }

    /// The head of the table that it is, if it is one.
    fn head(&self, text: &str, end: usize) -> Option<Range<usize>> {
        let own = || table_head(&text[self.start..end]).map(|length| self.start..self.start + length);
        self.rows_of.clone().or_else(own)
    }
}

fn scan(text: &str, from: usize, before: Before) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut run = Run::default();
    let (mut code, mut table) = match before {
        Before::Nothing => (None, None),
        Before::Code(language, fence) => (Some(Code::new(language, fence, from, false)), None),
        Before::Table(head) => (None, Some(head)),
    };
    // A fence inside of a list item belongs to the list; blank lines in it do not end anything.
    let mut inner: Option<(u8, usize)> = None;
    for (at, line) in lines(text, from) {
        let end = at + line.len();
        if let Some(open) = code.as_mut() {
            let closes = fence_of(line)
                .is_some_and(|(mark, length, info)| {
                    mark == open.fence.0 && length >= open.fence.1 && info.trim().is_empty()
                })
                // A line that is still being written may yet become more than a fence.
                && (line.ends_with('\n') || end == text.len());
            if closes {
                blocks.push(open.block(at, end, true));
                code = None;
            } else {
                open.lines += 1;
                if open.lines >= CODE_LINES && line.ends_with('\n') {
                    blocks.push(open.block(end, end, false));
                    *open = Code::new(std::mem::take(&mut open.language), open.fence, end, false);
                }
            }
            continue;
        }
        if let Some((mark, length)) = inner {
            if fence_of(line.trim_start())
                .is_some_and(|(m, l, info)| m == mark && l >= length && info.trim().is_empty())
            {
                inner = None;
            }
            continue;
        }
        if line.trim().is_empty() {
            run.blank = true;
            table = None;
            continue;
        }
        let length = at - run.start;
        let ends_text = is_heading(line) || fence_of(line).is_some();
        let belongs = run.open
            && match (run.list, run.blank) {
                (true, true) => line.starts_with([' ', '\t']) || (is_list_item(line) && length < LONG),
                (true, false) => !is_list_item(line) || line.starts_with(' ') || length < LONG,
                (false, true) => false,
                (false, false) => !ends_text && length < LONG,
            };
        if !belongs {
            let mut rows_of = table.take();
            if run.open {
                // Only its length ended it: the next row of a table still is one.
                let cut = !run.list && !run.blank && !ends_text;
                rows_of = run.head(text, at).filter(|_| cut);
                blocks.push(run.block(at));
            }
            let rows_of = rows_of.filter(|_| !ends_text);
            let list = rows_of.is_none() && is_list_item(line);
            run = Run { start: at, list, blank: false, open: true, rows_of };
        }
        run.blank = false;
        if let Some((mark, length, info)) = fence_of(line.trim_start()).filter(|_| run.list) {
            let _ = info;
            inner = Some((mark, length));
        } else if let Some((mark, length, info)) = fence_of(line).filter(|_| !run.list) {
            run.open = false;
            code = Some(Code::new(info.trim().to_owned(), (mark, length), end, true));
        } else if is_heading(line) && !run.list && line.ends_with('\n') {
            blocks.push(run.block(end));
            run.open = false;
        } else if !run.list && line.len() > LONG_LINE {
            cut_line(text, &mut run, end, &mut blocks);
        }
    }
    if let Some(open) = code {
        blocks.push(open.block(text.len(), text.len(), false));
    } else if run.open {
        blocks.push(run.block(text.len()));
    }
    blocks
}

/// Cuts a line without end at spaces.
fn cut_line(text: &str, run: &mut Run, end: usize, blocks: &mut Vec<Block>) {
    while end - run.start > LONG_LINE {
        let Some(wide) = text[run.start..end].char_indices().map(|(at, _)| at).find(|at| *at >= LONG) else {
            break;
        };
        let Some(space) = text[run.start + wide..end].find(' ') else { break };
        let cut = run.start + wide + space + 1;
        if cut >= end {
            break;
        }
        blocks.push(run.block(cut));
        (run.start, run.rows_of) = (cut, None);
    }
}

/// Fenced code that a scan is in.
struct Code {
    language: String,
    fence: (u8, usize),
    start: usize,
    first: bool,
    lines: usize,
}

impl Code {
    fn new(language: String, fence: (u8, usize), start: usize, first: bool) -> Self {
        Self { language, fence, start, first, lines: 0 }
    }

    fn block(&self, end: usize, next: usize, last: bool) -> Block {
        let kind = Kind::Code { language: self.language.clone(), fence: self.fence, first: self.first, last };
        block(self.start..end, next, kind)
    }
}

#[cfg(test)]
mod tests;
