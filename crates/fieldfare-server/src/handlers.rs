//! From a request to its answer: the routes, and what each does.

use crate::body::{Held, Reply, Room};
use crate::door::{Door, Place, Thought, Work};
use crate::guard::Guard;
use crate::metrics::Metrics;
use crate::page;
use crate::stream::Events;
use crate::wire::chat::{ChatRequest, Served};
use crate::wire::completions::{self, CompletionRequest, Given};
use crate::wire::error::ApiError;
use crate::wire::fields;
use crate::wire::reply::{Head, Shape, call_refusal};
use crate::wire::sampling::Ending;
use fieldfare::chat;
use fieldfare::engine::{GenerateOptions, OutputMode};
use fieldfare::grammar::{Grammars, Rules};
use fieldfare::sample::Plan;
use fieldfare::store::Board;
use fieldfare::tokenizer::Tokenizer;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What is there before the model is: it turns strangers away, and tells others to wait.
pub(crate) struct Front {
    /// Who may come in.
    pub(crate) guard: Guard,
    /// Counters and log.
    pub(crate) metrics: Arc<Metrics>,
    /// Everything else, once the model is open.
    pub(crate) app: OnceLock<Arc<App>>,
}

impl Front {
    fn app(&self) -> Result<&Arc<App>, Box<ApiError>> {
        self.app.get().ok_or_else(|| Box::new(ApiError::loading()))
    }

    /// How many run and how many wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        self.app.get().map_or((0, 0), |app| app.door.load())
    }
}

/// What all requests share.
pub(crate) struct App {
    /// The way to the engine.
    pub(crate) door: Door,
    /// Text to ids and back.
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// What answers are bound to.
    pub(crate) grammars: Grammars,
    /// What requests are checked against.
    pub(crate) served: Served,
    /// How much of bodies may be in memory.
    pub(crate) room: Room,
    /// Counters and log.
    pub(crate) metrics: Arc<Metrics>,
    /// When the model was made, in seconds since 1970.
    pub(crate) created: u64,
    /// Tokens of context that it was made for.
    pub(crate) trained_context: Option<u64>,
    /// Bytes of its files.
    pub(crate) size: u64,
    /// Names weights and program.
    pub(crate) fingerprint: String,
    /// Which experts are in memory.
    pub(crate) board: Option<Arc<Board>>,
    /// Pause after which a stream gives a sign of life.
    pub(crate) keep_alive: Duration,
    /// Thoughts go out under both names.
    pub(crate) both_reasoning: bool,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    Root,
    Stats,
    Health,
    Metrics,
    Models,
    Model(String),
    Chat,
    Completions,
    Tokenize,
    Detokenize,
    Template,
}

impl Route {
    /// Reads a path: with or without `/v1`, with or without a slash at the end.
    fn of(path: &str) -> Option<Self> {
        let path = path.trim_end_matches('/');
        match path {
            "" | "/v1" => return Some(Self::Root),
            "/healthz" => return Some(Self::Health),
            "/metrics" => return Some(Self::Metrics),
            "/stats" => return Some(Self::Stats),
            _ => {}
        }
        let short = path.strip_prefix("/v1").filter(|rest| rest.starts_with('/')).unwrap_or(path);
        match short {
            "/health" => Some(Self::Health),
            "/models" => Some(Self::Models),
            "/chat/completions" => Some(Self::Chat),
            "/completions" => Some(Self::Completions),
            "/tokenize" => Some(Self::Tokenize),
            "/detokenize" => Some(Self::Detokenize),
            "/apply-template" => Some(Self::Template),
            _ => short.strip_prefix("/models/").map(|name| Self::Model(unescaped(name))),
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Stats => "stats",
            Self::Health => "health",
            Self::Metrics => "metrics",
            Self::Models | Self::Model(_) => "models",
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
            Self::Template => "template",
        }
    }

    fn methods(&self) -> &'static str {
        match self {
            Self::Chat | Self::Completions | Self::Tokenize | Self::Detokenize | Self::Template => "POST",
            _ => "GET, HEAD",
        }
    }

    fn takes(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|name| name == method.as_str())
    }
}

/// `%2F` and the like; what is no escape stays.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let code = if *first == b'%' { more.get(..2) } else { None };
        let code = code.filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        match code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

type Outcome = Result<Response<Reply>, Box<ApiError>>;

/// Answers a request, whatever it is.
pub(crate) async fn handle(front: Arc<Front>, request: Request<Incoming>) -> Response<Reply> {
    let preflight = Guard::is_preflight(request.method(), request.headers());
    let route = Route::of(request.uri().path());
    let label = if preflight { "preflight" } else { route.as_ref().map_or("other", Route::label) };
    let cors = front.guard.cors(request.headers());
    let name = request_name(&request);
    let outcome =
        if preflight { answer_preflight(&front, &request) } else { answer(&front, route, request).await };
    let mut response = outcome.unwrap_or_else(|error| refusal(&error));
    let headers = response.headers_mut();
    if !preflight {
        headers.extend(cors);
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    // By this a second server on the same port is told apart from a stranger.
    headers.insert(header::SERVER, HeaderValue::from_static("fieldfare"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(HeaderName::from_static("x-request-id"), name);
    }
    front.metrics.request(label, response.status().as_u16());
    response
}

/// The client's own name for the request if it is a harmless one, else a new one.
fn request_name(request: &Request<Incoming>) -> String {
    let given = request.headers().get("x-request-id").and_then(|value| value.to_str().ok());
    let harmless = |name: &&str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    given.filter(harmless).map_or_else(|| crate::wire::id::answer("req_"), str::to_owned)
}

fn answer_preflight(front: &Front, request: &Request<Incoming>) -> Outcome {
    let headers = front.guard.preflight(request.headers())?;
    let mut response = Response::new(Reply::Whole(None));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().extend(headers);
    Ok(response)
}

async fn answer(front: &Front, route: Option<Route>, request: Request<Incoming>) -> Outcome {
    front.guard.check(&request)?;
    // The page holds nothing that is secret, and asks for the key itself.
    let page = route == Some(Route::Root) && page::wanted(request.headers());
    if route != Some(Route::Health) && !page {
        front.guard.authorize(request.headers())?;
    }
    let Some(route) = route else { return Err(Box::new(ApiError::not_found(request.uri().path()))) };
    if !route.takes(request.method()) {
        return Err(Box::new(ApiError::method(route.methods())));
    }
    if page {
        return Ok(page::answer());
    }
    serve(front.app()?, route, request).await
}

async fn serve(app: &Arc<App>, route: Route, request: Request<Incoming>) -> Outcome {
    let (parts, body) = request.into_parts();
    match route {
        Route::Stats => Ok(json_reply(&stats(app, parts.uri.query() == Some("counts")))),
        Route::Root => Ok(json_reply(&json!({
            "name": "fieldfare",
            "version": env!("CARGO_PKG_VERSION"),
            "model": app.served.id,
        }))),
        Route::Health => Ok(json_reply(&json!({ "status": "ok" }))),
        Route::Metrics => Ok(metrics_page(app)),
        Route::Models => {
            let names = std::iter::once(&app.served.id).chain(&app.served.aliases);
            let data: Vec<Value> = names.map(|name| model_entry(app, name)).collect();
            Ok(json_reply(&json!({ "object": "list", "data": data })))
        }
        Route::Model(name) if app.served.is_called(&name) => Ok(json_reply(&model_entry(app, &name))),
        Route::Model(name) => Err(Box::new(ApiError::model(&name))),
        Route::Chat => {
            // Whoever sends slowly holds up nobody: the place is taken once the body is here.
            let body = app.room.read(&parts, body).await?;
            let place = app.door.enter()?;
            chat_completion(app, place, body).await
        }
        Route::Completions => {
            // Whoever sends slowly holds up nobody: the place is taken once the body is here.
            let body = app.room.read(&parts, body).await?;
            let place = app.door.enter()?;
            completion(app, place, body).await
        }
        Route::Tokenize => with_body(app, &parts, body, tokenize).await,
        Route::Detokenize => with_body(app, &parts, body, detokenize).await,
        Route::Template => with_body(app, &parts, body, apply_template).await,
    }
}

/// Figures of this moment, for the page and for whoever watches; with `counts` what each expert went through so far.
fn stats(app: &App, counts: bool) -> Value {
    let (running, waiting) = app.door.load();
    let mut stats = app.metrics.live();
    stats["model"] = app.served.id.clone().into();
    stats["context"] = app.served.context.into();
    stats["running"] = running.into();
    stats["waiting"] = waiting.into();
    if let Some(board) = &app.board {
        let row = |layer: usize| -> String {
            let digit =
                |at: usize| (0..4).fold(0, |bits, i| bits << 1 | u32::from(board.holds(layer, 4 * at + i)));
            (0..board.experts().div_ceil(4)).filter_map(|at| char::from_digit(digit(at), 16)).collect()
        };
        let layers: Vec<String> = (0..board.layers()).map(row).collect();
        // The door's readings are of the last answer; these of the last layer.
        let now = board.counts();
        stats["experts"] = json!({ "hits": now.hits, "misses": now.misses, "bytes_read": now.bytes_read });
        stats["experts"]["map"] = json!({ "experts": board.experts(), "layers": layers });
        if counts {
            let all = |count: &dyn Fn(usize, usize) -> u32| -> Vec<Vec<u32>> {
                let row = |layer| (0..board.experts()).map(|expert| count(layer, expert)).collect();
                (0..board.layers()).map(row).collect()
            };
            stats["experts"]["map"]["uses"] = json!(all(&|layer, expert| board.uses(layer, expert)));
            stats["experts"]["map"]["reads"] = json!(all(&|layer, expert| board.reads(layer, expert)));
        }
    }
    stats
}

fn model_entry(app: &App, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.created,
        "owned_by": "fieldfare",
        "max_model_len": app.served.context,
        "context_length": app.served.context,
        "meta": {
            "n_ctx": app.served.context,
            "n_ctx_train": app.trained_context,
            "n_vocab": app.served.vocabulary,
            "size": app.size,
        },
    })
}

/// Does something with a body where it may take its time.
async fn aside<T: Send + 'static>(
    app: &Arc<App>,
    body: Held,
    work: impl FnOnce(&App, &[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, Box<ApiError>> {
    let shared = app.clone();
    let done = tokio::task::spawn_blocking(move || work(&shared, &body.bytes)).await;
    match done {
        Ok(result) => result.map_err(Box::new),
        Err(_) => {
            app.metrics.log("internal error: reading a request panicked");
            Err(Box::new(ApiError::internal()))
        }
    }
}

async fn with_body(
    app: &Arc<App>,
    parts: &Parts,
    body: Incoming,
    work: fn(&App, &[u8]) -> Result<Value, ApiError>,
) -> Outcome {
    let body = app.room.read(parts, body).await?;
    aside(app, body, work).await.map(|value| json_reply(&value))
}

/// What a request comes to.
struct Asked {
    works: VecDeque<Work>,
    head: Head,
    stream: bool,
}

async fn chat_completion(app: &Arc<App>, place: Place, body: Held) -> Outcome {
    let asked = aside(app, body, |app, bytes| {
        let request = ChatRequest::parse(&fields::object(bytes)?, &app.served)?;
        let mut head = head(app, Shape::Chat, request.include_usage);
        head.each = request.count;
        let (stream, count) = (request.stream, request.count);
        let works = repeated(chat_work(app, request)?, count).collect();
        Ok(Asked { works, head, stream })
    })
    .await?;
    respond(app, place, asked).await
}

fn head(app: &App, shape: Shape, include_usage: bool) -> Head {
    let head = Head::new(shape, &app.served.id, include_usage, app.tokenizer.clone());
    Head { both_reasoning: app.both_reasoning, fingerprint: app.fingerprint.clone(), ..head }
}

/// The same work several times: with a seed each has its own, the first the one that was asked for.
fn repeated(work: Work, count: usize) -> impl Iterator<Item = Work> {
    (0..count as u64).map(move |number| {
        let mut work = work.clone();
        if let Some(seed) = &mut work.options.sampling.seed {
            *seed = seed.wrapping_add(number);
        }
        if number > 0 {
            // The prompt's own numbers are the same for all.
            work.options.prompt_logprobs = None;
        }
        work
    })
}

fn chat_work(app: &App, request: ChatRequest) -> Result<Work, ApiError> {
    let tools = &request.tools;
    if tools.opened > 0 {
        app.metrics.opened_tools.add(tools.opened as u64);
        app.metrics.log(&format!("{} tools declared without their schema", tools.opened));
    }
    if tools.loosened > 0 {
        app.metrics.log(&format!("{} strict tools whose schema cannot be enforced", tools.loosened));
    }
    let prompt = chat::render(&request.messages, &tools.declared, &request.render, &app.tokenizer)
        .map_err(|error| render_refusal(app, error))?;
    let control = app.tokenizer.control();
    let starts_inside = prompt.starts_in_reasoning;
    let max_new = fitting(app, prompt.ids.len(), request.max_tokens)?;
    let rules = Rules {
        content: request.format,
        calls: request.tools.rules.clone(),
        choice: request.tools.choice.clone(),
        single_call: !request.tools.parallel,
        may_think: request.render.enable_thinking && !request.render.continue_final,
        starts_in_thought: starts_inside,
        thought_tokens: request.thought_tokens,
    };
    let plan = app.grammars.bind(&rules).map_err(|error| grammar_refusal(app, error))?;
    let options = GenerateOptions {
        sampling: request.sampling,
        max_new,
        stop: request.stop,
        mode: OutputMode::Chat { starts_in_reasoning: starts_inside, tools: request.tools.names() },
        logprobs: request.logprobs,
        told_calls: plan.as_ref().map(|plan| plan.told_calls().to_vec()).unwrap_or_default(),
        plan: plan.map(|plan| Arc::new(plan) as Arc<dyn Plan>),
        // Where there are no tools a call could only be an error.
        suppress: request.tools.declared.is_empty().then(|| {
            let mut ids = control.suppressed();
            ids.push(control.call_open);
            ids
        }),
        ..ended(app, request.ending)
    };
    let thought = Some(Thought { open: control.channel_open, close: control.channel_close, starts_inside });
    Ok(Work { prompt: prompt.ids, options, one_call: !request.tools.parallel, thought })
}

/// The options that say what ends an answer.
fn ended(app: &App, ending: Ending) -> GenerateOptions {
    let stop_ids = (!ending.stop_ids.is_empty()).then(|| {
        let mut ids = app.tokenizer.control().stop_ids();
        ids.extend(ending.stop_ids);
        ids
    });
    GenerateOptions { stop_ids, min_new: ending.least, ..GenerateOptions::default() }
}

fn grammar_refusal(app: &App, error: fieldfare::Error) -> ApiError {
    match error {
        fieldfare::Error::BadRequest { field, reason } if field == "schema" => {
            ApiError::bad("invalid_json_schema", "response_format", reason)
        }
        fieldfare::Error::BadRequest { field, reason } => ApiError::value(field, reason),
        other => {
            app.metrics.log(&format!("internal error: {other}"));
            ApiError::internal()
        }
    }
}

fn render_refusal(app: &App, error: fieldfare::Error) -> ApiError {
    match error {
        fieldfare::Error::BadRequest { field, reason } => ApiError::bad("invalid_message", field, reason),
        other => {
            app.metrics.log(&format!("internal error: {other}"));
            ApiError::internal()
        }
    }
}

/// How many tokens may be made after a prompt of this length.
fn fitting(app: &App, prompt: usize, wanted: usize) -> Result<usize, ApiError> {
    let context = app.served.context;
    if prompt > context {
        return Err(ApiError::too_long(prompt, context));
    }
    // One more than what is left: the last token made need not be fed.
    Ok(wanted.min(context - prompt + 1))
}

async fn completion(app: &Arc<App>, place: Place, body: Held) -> Outcome {
    let asked = aside(app, body, |app, bytes| {
        let request = CompletionRequest::parse(&fields::object(bytes)?, &app.served)?;
        let mut head = head(app, Shape::Text, request.include_usage);
        head.each = request.count;
        head.echo_scored = request.echo && request.logprobs.is_some();
        let mut works = VecDeque::new();
        for (i, given) in request.prompts.iter().enumerate() {
            let prompt = request.ids(given, &app.tokenizer);
            let param = if request.prompts.len() > 1 { format!("prompt[{i}]") } else { "prompt".to_owned() };
            let max_new = fitting(app, prompt.len(), request.max_tokens)
                .map_err(|error| ApiError { param: Some(param), ..error })?;
            if request.echo {
                head.echo.push(match given {
                    Given::Text(text) => text.clone(),
                    Given::Ids(ids) => app.tokenizer.decode(ids, true),
                });
            }
            let options = GenerateOptions {
                sampling: request.sampling.clone(),
                max_new,
                stop: request.stop.clone(),
                logprobs: request.logprobs,
                prompt_logprobs: request.logprobs.filter(|_| request.echo),
                ..ended(app, request.ending.clone())
            };
            let work = Work { prompt, options, one_call: false, thought: None };
            works.extend(repeated(work, request.count));
        }
        Ok(Asked { works, head, stream: request.stream })
    })
    .await?;
    respond(app, place, asked).await
}

async fn respond(app: &Arc<App>, place: Place, asked: Asked) -> Outcome {
    let Asked { mut works, head, stream } = asked;
    let Some(first) = works.pop_front() else { return Err(Box::new(ApiError::internal())) };
    let mut answer = place.submit(first);
    if stream {
        let events = Events::new(head, answer, works, app.keep_alive, app.metrics.clone());
        let mut response = Response::new(Reply::Events(Box::new(events)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        return Ok(response);
    }
    let mut outcomes = Vec::with_capacity(works.len() + 1);
    loop {
        let outcome = answer.outcome().await?;
        if let Some(error) = &outcome.generation.call_error {
            app.metrics.log(&format!("a tool call could not be read: {}", error.kind.name()));
            return Err(Box::new(call_refusal(error)));
        }
        outcomes.push(*outcome);
        match works.pop_front() {
            Some(work) => answer.again(work),
            None => return Ok(json_reply(&head.whole(&outcomes))),
        }
    }
}

/// The prompt that a chat request comes to, as text; its ids if `tokens` asks.
fn apply_template(app: &App, bytes: &[u8]) -> Result<Value, ApiError> {
    let (request, map) = chat_of(app, fields::object(bytes)?)?;
    let declared = &request.tools.declared;
    let refused = |error| render_refusal(app, error);
    let text = chat::render_text(&request.messages, declared, &request.render).map_err(refused)?;
    let mut reply = json!({ "prompt": text });
    if fields::boolean(&map, "tokens")?.unwrap_or(false) {
        let prompt =
            chat::render(&request.messages, declared, &request.render, &app.tokenizer).map_err(refused)?;
        reply["tokens"] = prompt.ids.into();
    }
    Ok(reply)
}

/// The ids that a conversation comes to, counted as vLLM counts them.
fn tokenize_chat(app: &App, map: Map<String, Value>) -> Result<Value, ApiError> {
    let (request, _) = chat_of(app, map)?;
    let prompt = chat::render(&request.messages, &request.tools.declared, &request.render, &app.tokenizer)
        .map_err(|error| render_refusal(app, error))?;
    let (count, context) = (prompt.ids.len(), app.served.context);
    Ok(json!({ "count": count, "max_model_len": context, "tokens": prompt.ids }))
}

/// A chat body, in which the model need not be named.
fn chat_of(app: &App, mut map: Map<String, Value>) -> Result<(ChatRequest, Map<String, Value>), ApiError> {
    if fields::get(&map, "model").is_none() {
        map.insert("model".to_owned(), "default".into());
    }
    Ok((ChatRequest::parse(&map, &app.served)?, map))
}

fn tokenize(app: &App, bytes: &[u8]) -> Result<Value, ApiError> {
    let map = fields::object(bytes)?;
    let special = fields::boolean(&map, "parse_special")?.unwrap_or(true);
    let mut ids = Vec::new();
    if fields::get(&map, "messages").is_some() {
        return tokenize_chat(app, map);
    }
    let (text, counted) = match (fields::text(&map, "content")?, fields::text(&map, "prompt")?) {
        (Some(text), _) => (text, false),
        (None, Some(text)) => (text, true),
        (None, None) => return Err(ApiError::missing("content")),
    };
    if fields::boolean(&map, if counted { "add_special_tokens" } else { "add_special" })?.unwrap_or(counted) {
        ids.push(app.tokenizer.control().bos);
    }
    completions::encode(&app.tokenizer, text, special, &mut ids);
    if counted {
        return Ok(json!({ "count": ids.len(), "max_model_len": app.served.context, "tokens": ids }));
    }
    if fields::boolean(&map, "with_pieces")?.unwrap_or(false) {
        let piece = |&id: &u32| json!({ "id": id, "piece": app.tokenizer.piece(id).unwrap_or_default() });
        return Ok(json!({ "tokens": ids.iter().map(piece).collect::<Vec<_>>() }));
    }
    Ok(json!({ "tokens": ids }))
}

fn detokenize(app: &App, bytes: &[u8]) -> Result<Value, ApiError> {
    let map = fields::object(bytes)?;
    let value = fields::get(&map, "tokens").ok_or_else(|| ApiError::missing("tokens"))?;
    let ids = match value {
        Value::Array(items) if items.is_empty() => Vec::new(),
        value => completions::ids(value, "tokens", app.tokenizer.vocab_size())?,
    };
    let text = app.tokenizer.decode(&ids, false);
    Ok(json!({ "content": text, "prompt": text }))
}

fn metrics_page(app: &App) -> Response<Reply> {
    let (running, waiting) = app.door.load();
    let page = app.metrics.page(running, waiting);
    let mut response = Response::new(Reply::Whole(Some(Bytes::from(page))));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn json_reply(value: &Value) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(Some(Bytes::from(value.to_string()))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A refusal as a response.
fn refusal(error: &ApiError) -> Response<Reply> {
    let mut response = json_reply(&error.body());
    *response.status_mut() = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(seconds) = error.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(allow) = error.allow {
        headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    match error.status {
        401 => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // What is left of the request is not worth reading.
        408 | 413 | 431 => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        500 => {
            headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
        }
        _ => {}
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_clients_mean() {
        for (path, wanted) in [
            ("/", Some(Route::Root)),
            ("/v1", Some(Route::Root)),
            ("/v1/chat/completions", Some(Route::Chat)),
            ("/chat/completions/", Some(Route::Chat)),
            ("/v1/completions", Some(Route::Completions)),
            ("/v1/models/a%2Fb%zz", Some(Route::Model("a/b%zz".into()))),
            ("/healthz", Some(Route::Health)),
            ("/v1/health", Some(Route::Health)),
            ("/v1chat/completions", None),
            ("/v1/embeddings", None),
            ("/v1/v1/models", None),
        ] {
            assert_eq!(Route::of(path), wanted, "{path}");
        }
    }
}
