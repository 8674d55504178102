//! The tools in a request. One whose schema the format cannot express is declared with open parameters, so that it does
//! not fail the others; only a declaration without a usable name is refused.

use super::error::ApiError;
use super::fields::{boolean, get, text};
use fieldfare::Error;
use fieldfare::chat::{self, Tool};
use fieldfare::grammar::{ArgumentRule, CallRule, Choice};
use serde_json::{Map, Value, json};

/// Most tools of a request.
pub const MAX_TOOLS: usize = 256;

/// The tools that the model is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools {
    /// Declarations, adapted to the format.
    pub declared: Vec<Tool>,
    /// How many of them have open parameters in place of a schema that cannot be expressed.
    pub opened: usize,
    /// More than one call an answer.
    pub parallel: bool,
    /// Whether one is called.
    pub choice: Choice,
    /// What calls of them look like.
    pub rules: Vec<CallRule>,
    /// How many asked for strictness with a schema that cannot be enforced.
    pub loosened: usize,
}

impl Tools {
    /// The names, as the reader of calls wants them.
    pub fn names(&self) -> Vec<String> {
        self.declared.iter().map(|tool| tool.name.clone()).collect()
    }
}

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`. What calls are bound to takes at most `room` bytes
/// ([`fieldfare::grammar::Rules::bytes`]): the tools for which there is no more are bound to less.
///
/// # Errors
/// The tool, the field and its code.
pub fn tools(map: &Map<String, Value>, room: u64) -> Result<Tools, ApiError> {
    for key in ["functions", "function_call"] {
        super::fields::refuse(map, key, "give functions in tools, and tool_choice")?;
    }
    let given = match get(map, "tools") {
        None => Vec::new(),
        Some(Value::Array(items)) if items.len() > MAX_TOOLS => {
            return Err(ApiError::value("tools", format!("may have at most {MAX_TOOLS} entries")));
        }
        Some(Value::Array(items)) => {
            items.iter().enumerate().map(|(i, item)| tool(item, i)).collect::<Result<Vec<_>, _>>()?
        }
        Some(_) => return Err(ApiError::wrong_type("tools", "a list of tools")),
    };
    let parallel = boolean(map, "parallel_tool_calls")?.unwrap_or(true);
    let (given, strict): (Vec<Tool>, Vec<bool>) = given.into_iter().unzip();
    let choice = choice(map, &given)?;
    let wanted: Vec<Option<Value>> = given.iter().map(|tool| tool.parameters.clone()).collect();
    // A forced call is none that the model thought of, so its arguments are held to the schema like strict ones.
    let forced = choice.as_ref().is_some_and(|choice| *choice != Choice::Auto);
    let (declared, opened) = adapted(given)?;
    let Some(choice) = choice else { return Ok(Tools { opened, parallel, ..Tools::default() }) };
    let mut loosened = 0;
    let mut left = room;
    let mut fitting = |rule: CallRule| {
        left = left.checked_sub(rule.arguments.bytes())?;
        Some(rule)
    };
    let mut rule = |tool: &Tool, schema: &Option<Value>, strict: bool| {
        if matches!(&choice, Choice::Named(name) if *name != tool.name) {
            return CallRule::lenient(tool);
        }
        if let Some(schema) = schema.as_ref().filter(|_| strict || forced) {
            if let Some(rule) = CallRule::strict(&tool.name, schema).ok().and_then(&mut fitting) {
                return rule;
            }
            loosened += usize::from(strict);
        }
        let open = || CallRule { name: tool.name.clone(), arguments: ArgumentRule::Open };
        fitting(CallRule::lenient(tool)).unwrap_or_else(open)
    };
    let rules = declared
        .iter()
        .zip(&wanted)
        .zip(strict)
        .map(|((tool, schema), strict)| rule(tool, schema, strict))
        .collect();
    Ok(Tools { declared, opened, parallel, choice, rules, loosened })
}

/// A tool, and whether its arguments must fit.
fn tool(item: &Value, i: usize) -> Result<(Tool, bool), ApiError> {
    let path = format!("tools[{i}]");
    let Value::Object(tool) = item else { return Err(ApiError::wrong_type(path, "an object")) };
    match get(tool, "type") {
        None => {}
        Some(Value::String(kind)) if kind == "function" => {}
        Some(Value::String(kind)) => {
            let kind: String = kind.chars().take(40).collect();
            let reason = format!("tools of type `{kind}` are not supported, only function");
            return Err(ApiError::bad("unsupported_tool", format!("{path}.type"), reason));
        }
        Some(_) => return Err(ApiError::wrong_type(format!("{path}.type"), "text")),
    }
    let path = format!("{path}.function");
    let function = match get(tool, "function") {
        None => return Err(ApiError::missing(path)),
        Some(Value::Object(function)) => function,
        Some(_) => return Err(ApiError::wrong_type(path, "an object")),
    };
    let within = |error: ApiError| {
        let key = error.param.unwrap_or_default();
        ApiError::wrong_type(format!("{path}.{key}"), "text")
    };
    let name = match text(function, "name").map_err(within)? {
        Some(name) => name.to_owned(),
        None => return Err(ApiError::bad("invalid_tool_name", format!("{path}.name"), "is missing")),
    };
    let strict = match get(function, "strict") {
        None => false,
        Some(Value::Bool(strict)) => *strict,
        Some(_) => return Err(ApiError::wrong_type(format!("{path}.strict"), "true or false")),
    };
    let tool = Tool {
        name,
        description: text(function, "description").map_err(within)?.map(str::to_owned),
        parameters: get(function, "parameters").cloned(),
        response: get(function, "response").filter(|value| value.is_object()).cloned(),
    };
    Ok((tool, strict))
}

/// Whether one is called; `None` hides them.
fn choice(map: &Map<String, Value>, declared: &[Tool]) -> Result<Option<Choice>, ApiError> {
    let without = "needs tools";
    match get(map, "tool_choice") {
        None => Ok(Some(Choice::Auto)),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(Some(Choice::Auto)),
            "none" => Ok(None),
            "required" if declared.is_empty() => Err(ApiError::value("tool_choice", without)),
            "required" => Ok(Some(Choice::Required)),
            _ => Err(ApiError::value("tool_choice", "must be auto, none, required or an object")),
        },
        Some(Value::Object(named)) => {
            let name = named.get("function").and_then(|function| function.get("name"));
            match name.and_then(Value::as_str) {
                _ if named.get("type").is_none_or(|kind| kind != "function") => {
                    Err(ApiError::value("tool_choice.type", "must be function"))
                }
                None => Err(ApiError::missing("tool_choice.function.name")),
                Some(_) if declared.is_empty() => Err(ApiError::value("tool_choice", without)),
                Some(name) if !declared.iter().any(|tool| tool.name == name) => {
                    Err(ApiError::value("tool_choice.function.name", "names no tool of this request"))
                }
                Some(name) => Ok(Some(Choice::Named(name.to_owned()))),
            }
        }
        Some(_) => Err(ApiError::wrong_type("tool_choice", "text or an object")),
    }
}

/// The declarations in the subset that the format can express, and how many lost their schema on the way.
fn adapted(mut declared: Vec<Tool>) -> Result<(Vec<Tool>, usize), ApiError> {
    let mut opened = 0;
    for (i, tool) in declared.iter_mut().enumerate() {
        match chat::prepare_tools(std::slice::from_ref(tool)) {
            Ok(_) => {}
            Err(Error::BadRequest { field, .. }) if field.contains(".parameters") => {
                tool.parameters = Some(open());
                opened += 1;
            }
            Err(error) => return Err(refusal(error, Some(i))),
        }
    }
    match chat::prepare_tools(&declared) {
        Ok(tools) => Ok((tools, opened)),
        // Each fits by itself, all together copy too much by reference: none of them may.
        Err(Error::BadRequest { field, .. }) if field.contains(".parameters") => {
            for tool in &mut declared {
                let refers =
                    tool.parameters.as_ref().is_some_and(|schema| schema.to_string().contains("\"$ref\""));
                if refers {
                    tool.parameters = Some(open());
                    opened += 1;
                }
            }
            chat::prepare_tools(&declared).map(|tools| (tools, opened)).map_err(|error| refusal(error, None))
        }
        Err(error) => Err(refusal(error, None)),
    }
}

/// Any object.
fn open() -> Value {
    json!({ "type": "object" })
}

fn refusal(error: Error, index: Option<usize>) -> ApiError {
    let Error::BadRequest { field, reason } = error else { return ApiError::internal() };
    let code = if field.ends_with(".name") { "invalid_tool_name" } else { "invalid_tool_schema" };
    let field = match index {
        Some(i) => field.replacen("tools[0]", &format!("tools[{i}]"), 1),
        None => field,
    };
    ApiError::bad(code, field, reason)
}
