//! `freehold.private.v1.AccessService`.

use tonic::{Request, Response, Status, async_trait};

use super::{Service, caller};
use crate::{
    api::{
        access::tokens::NewToken,
        errors::ApiError,
        proto::private_v1::{
            CreateTokenRequest, CreateTokenResponse, ListTokensRequest, ListTokensResponse,
            RevokeTokenRequest, RevokeTokenResponse, access_service_server::AccessService,
        },
        wire,
    },
    domain::access::{Role, UnknownRole},
};

fn parse(request: CreateTokenRequest) -> Result<NewToken, ApiError> {
    let role: Role = request
        .role
        .parse()
        .map_err(|error: UnknownRole| ApiError::invalid("role", error.to_string()))?;
    Ok(NewToken {
        request_id: request.request_id,
        name: request.name,
        role,
        subject: request.subject,
        expires_at: wire::parse_optional_time("expires_at", request.expires_at)?,
    })
}

#[async_trait]
impl AccessService for Service {
    async fn create_token(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenResponse>, Status> {
        let by = caller(&request)?;
        let made = self.ask.create_token(parse(request.into_inner())?, &by).await?;
        Ok(Response::new(CreateTokenResponse {
            token: Some(wire::token::render(made.report)),
            secret: made
                .secret
                .map(|secret| secret.expose().to_owned())
                .unwrap_or_default(),
        }))
    }

    async fn list_tokens(
        &self,
        _request: Request<ListTokensRequest>,
    ) -> Result<Response<ListTokensResponse>, Status> {
        let tokens = self.ask.tokens().into_iter().map(wire::token::render).collect();
        Ok(Response::new(ListTokensResponse { tokens }))
    }

    async fn revoke_token(
        &self,
        request: Request<RevokeTokenRequest>,
    ) -> Result<Response<RevokeTokenResponse>, Status> {
        let by = caller(&request)?;
        self.ask.revoke_token(&request.into_inner().id, &by).await?;
        Ok(Response::new(RevokeTokenResponse {}))
    }
}
