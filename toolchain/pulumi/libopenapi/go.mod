module github.com/pb33f/libopenapi

go 1.25.0

require go.yaml.in/yaml/v4 v4.0.0-rc.6
